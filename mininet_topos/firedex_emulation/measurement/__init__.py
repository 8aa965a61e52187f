"""Evaluation of a finished run: delivered events, delays, outages, and predictions beside them.

Pure functions of an ``Observation`` and delivery records. This package does not know how or where
the run took place.
"""
