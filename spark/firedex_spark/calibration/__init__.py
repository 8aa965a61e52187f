"""``calibrate``: estimate the parameters of a scenario from delivery records.

Owns the sums over windows, the estimates with their intervals, and the report. Reads records only
through ``firedex_spark.records``.
"""
