"""Entry point of ``spark-submit …/__main__.py JOB`` and of ``python -m firedex_spark JOB``."""

from firedex_spark.command import spark

if __name__ == "__main__":
    spark()
