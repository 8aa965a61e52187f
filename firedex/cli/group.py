"""``firedex`` without its commands: light, so that who needs one part does not load the others."""

import click

from firedex import __version__

__all__ = ["firedex"]


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="firedex")
def firedex() -> None:
    """Plan, predict and enforce which MQTT events get through a network that is too small.

    SCENARIO is a YAML file (docs/scenario.md) or one that comes along, such as builtin:high-rise.
    Every option has a twin in the environment: FIREDEX_PREDICT_MODEL is predict's --model.
    """
