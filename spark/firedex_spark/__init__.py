"""Spark jobs: validate predictions, calibrate scenarios, learn utility weights, plan many sites.

Each job has a package, with the job in ``job.py`` (functions from DataFrame to DataFrame, and pure
functions that executors import) and its files and page in ``report.py``:

- ``records``: delivery records and predictions as files; sorted, cut into windows, summed up;
  ``arrange-records``.
- ``validation``: ``validate-delays``.
- ``calibration``: ``calibrate``.
- ``weights``: ``fit-utility-weights``.
- ``fleet``: ``plan-sites``.
- ``sweep``: ``simulate-sweep``, and paths into a scenario.

Jobs on the interest in topics between sites (``interest-profile``, ``predict-interest``,
``plan-overlay``) belong in a package ``overlay`` beside these.

The modules at the top are what all jobs share: the session, schemas, errors, the output folder, the
page, and the command line. No session is started at import time. Nothing here knows the service,
the controller or the clients: files are the only interface.
"""
