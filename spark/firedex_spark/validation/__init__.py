"""``validate-delays``: compare measured delays and success rates with the predicted ones.

Owns the statistics (batch means, drift), the verdicts, the stream and the report. Reads records
only through ``firedex_spark.records``.
"""
