"""``spark-submit …/firedex_spark/__main__.py JOB …``, or ``python -m firedex_spark JOB …``."""

from firedex_spark.command import spark

if __name__ == "__main__":
    spark()
