"""Spark jobs: learn utility weights, calibrate the model, validate predictions at scale."""
