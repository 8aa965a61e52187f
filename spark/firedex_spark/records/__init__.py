"""Delivery records and predictions: files, columns, windows of time, sums, generated records.

Knows what a record is and which rows count; knows nothing of verdicts, estimates or reports.
"""
