"""Where an experiment runs: sandbox, emulated network, site processes and programs on hosts.

It records what happened (``measurement.observation``) and does not evaluate it.
"""
