"""What every job's command has: options, an output folder, a session, and reasons when it fails."""

import json as json_text
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from firedex.cli.options import json_option
from firedex.cli.output import fail
from firedex.wire import WireError
from firedex_models import ModelError
from firedex_spark.errors import SparkJobError
from firedex_spark.output_folder import whole_results
from firedex_spark.session import (
    DEFAULT_MEMORY,
    SPARK_ERRORS,
    SparkSession,
    spark_session,
    what_spark_says,
)

__all__ = ["ALARM", "SOURCE", "job_options", "reasons_told", "say", "tell", "writing"]

ALARM = 1
"""Exit code of a job that has done its work, and found what somebody should look at."""
SOURCE = click.Path(exists=True, path_type=Path)

F = TypeVar("F", bound=Callable[..., Any])
FOLDER = click.Path(file_okay=False, path_type=Path)


def _like(form: str, example: str) -> Callable[[object, object, str | None], str | None]:
    """Refuse a text that is not of a form, such as ``example``."""

    def checked(_context: object, _option: object, given: str | None) -> str | None:
        if given is not None and not re.fullmatch(form, given):
            raise click.BadParameter(f"{given!r} is not like {example}")
        return given

    return checked


memory_like = _like(r"[1-9][0-9]*[kmgt]", "4g or 900m")
master_like = _like(r"(spark|k8s)://\S+|yarn|local(\[\S+\])?", "spark://HOST:PORT")


def job_options(command: F) -> F:
    """``--out``, ``--master``, ``--memory`` and ``--json``, as every job has them."""
    command = json_option(command)
    command = click.option(
        "--memory",
        callback=memory_like,
        default=DEFAULT_MEMORY,
        show_default=True,
        help="Of the driver, and of each executor of a cluster, such as 4g.",
    )(command)
    command = click.option(
        "--master", callback=master_like, help="A cluster's, spark://HOST:PORT; none runs it here."
    )(command)
    return click.option(
        "--out",
        type=FOLDER,
        required=True,
        help="Results go here alone, in place of an earlier run's; other files there stay.",
    )(command)


@contextmanager
def reasons_told() -> Iterator[None]:
    """Whatever can be foreseen ends the command with the reason, not with a stack trace."""
    try:
        yield
    except (SparkJobError, WireError, ModelError, OSError) as error:
        fail(str(error))
    except SPARK_ERRORS as error:
        fail(f"Spark failed: {what_spark_says(error)} (FIREDEX_SPARK_LOG=ERROR shows all of it)")
    except Exception as error:  # exit code 1 would say that the job has done its work
        traceback.print_exc()
        fail(f"this is a fault of the job: {type(error).__name__}: {error}")


@contextmanager
def writing(
    name: str,
    out: Path,
    results: Sequence[str],
    sources: Sequence[Path],
    master: str | None,
    memory: str,
) -> Iterator[tuple[SparkSession, Path]]:
    """A session, and the folder to write results into, which take their places at the end."""
    with (
        reasons_told(),
        whole_results(out, results, sources) as folder,
        spark_session(name, master=master, memory=memory) as session,
    ):
        yield session, folder


def say(text: str) -> None:
    """Progress, and what else people want to know meanwhile."""
    click.echo(text, err=True)


def tell(out: Path, summary: Mapping[str, Any], json: bool) -> None:
    """What came of a job: JSON for machines, else a line for each figure that there is."""
    if json:
        click.echo(json_text.dumps(summary, indent=2))
        return
    for key, value in summary.items():
        name = key.replace("_", " ")
        if isinstance(value, Mapping):
            value = [f"{each}: {_in_words(figure)}" for each, figure in value.items()]
        if not isinstance(value, list):
            click.echo(f"{name}: {_in_words(value)}")
        elif value:
            click.echo("\n  ".join([f"{name}:", *map(_in_words, value)]))
    click.echo(f"in {out}")


def _in_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        figures = (f"{key.replace('_', ' ')} {_in_words(one)}" for key, one in value.items())
        return ", ".join(figures)
    return "none" if value is None else str(value)
