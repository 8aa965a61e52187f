"""Shared parts of all job commands: options, output folder, session, error messages."""

import json as json_text
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import click

from firedex.cli.options import json_option
from firedex.cli.output import fail
from firedex.wire import WireError
from firedex_models import ModelError
from firedex_spark.errors import SparkJobError
from firedex_spark.output_folder import atomic_results
from firedex_spark.session import (
    DEFAULT_MEMORY,
    SPARK_ERRORS,
    SparkSession,
    spark_error_message,
    spark_session,
)

__all__ = [
    "PROBLEM_FOUND",
    "SOURCE",
    "Finite",
    "job_options",
    "job_results",
    "log_progress",
    "print_summary",
    "report_errors",
]

PROBLEM_FOUND = 1
"""Exit code of a job that is complete and found a problem."""
SOURCE = click.Path(exists=True, path_type=Path)

F = TypeVar("F", bound=Callable[..., Any])
FOLDER = click.Path(file_okay=False, path_type=Path)


def _check_format(form: str, example: str) -> Callable[[object, object, str | None], str | None]:
    """Return an option callback that rejects values which do not match ``form``."""

    def check(_context: object, _option: object, given: str | None) -> str | None:
        if given is not None and not re.fullmatch(form, given):
            raise click.BadParameter(f"{given!r} is not valid; example: {example}")
        return given

    return check


check_memory = _check_format(r"[1-9][0-9]*[kmgt]", "4g or 900m")
check_master = _check_format(r"(spark|k8s)://\S+|yarn|local(\[\S+\])?", "spark://HOST:PORT")


def job_options(command: F) -> F:
    """Add ``--out``, ``--master``, ``--memory`` and ``--json`` to a command."""
    command = json_option(command)
    command = click.option(
        "--memory",
        callback=check_memory,
        default=DEFAULT_MEMORY,
        show_default=True,
        help="Memory of the driver and of each executor, for example 4g.",
    )(command)
    command = click.option(
        "--master",
        callback=check_master,
        help="URL of a Spark cluster, spark://HOST:PORT. Default: run on this machine.",
    )(command)
    return click.option(
        "--out",
        type=FOLDER,
        required=True,
        help="Output folder. Results of an earlier run are replaced, other files are kept.",
    )(command)


@contextmanager
def report_errors() -> Iterator[None]:
    """End the command with exit code 2 and a message for every expected error."""
    try:
        yield
    except (SparkJobError, WireError, ModelError, OSError) as error:
        fail(str(error))
    except SPARK_ERRORS as error:
        fail(
            f"Spark failed: {spark_error_message(error)} "
            "(set FIREDEX_SPARK_LOG=ERROR to see the full log)"
        )
    except Exception as error:  # exit code 1 would mean that the job is complete
        traceback.print_exc()
        fail(f"internal error, see the traceback above: {type(error).__name__}: {error}")


@contextmanager
def job_results(
    name: str,
    out: Path,
    results: Sequence[str],
    sources: Sequence[Path],
    master: str | None,
    memory: str,
) -> Iterator[tuple[SparkSession, Path]]:
    """Yield a session and a folder for the results; they are published when the block ends."""
    with (
        report_errors(),
        atomic_results(out, results, sources) as folder,
        spark_session(name, master=master, memory=memory) as session,
    ):
        yield session, folder


def log_progress(text: str) -> None:
    """Print a progress message on standard error."""
    click.echo(text, err=True)


def print_summary(out: Path, summary: Mapping[str, Any], json: bool) -> None:
    """Print the summary of a job: JSON, or a line for each figure."""
    if json:
        click.echo(json_text.dumps(summary, indent=2))
        return
    for key, value in summary.items():
        name = key.replace("_", " ")
        if isinstance(value, Mapping):
            value = [f"{each}: {_value_text(figure)}" for each, figure in value.items()]
        if not isinstance(value, list):
            click.echo(f"{name}: {_value_text(value)}")
        elif value:
            click.echo("\n  ".join([f"{name}:", *map(_value_text, value)]))
    click.echo(f"results: {out}")


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        figures = (f"{key.replace('_', ' ')} {_value_text(one)}" for key, one in value.items())
        return ", ".join(figures)
    return "none" if value is None else str(value)


class Finite(click.FloatRange):
    """A number in a range; NaN and infinity are rejected, which click accepts."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert as click does, and reject a number that is not finite."""
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number
