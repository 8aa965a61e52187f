"""``firedex controller``."""

import logging
import os

import click

from firedex_controller.settings import ControllerSettings, parse_switch

__all__ = ["controller"]


def _switch(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> object:
    try:
        return dict(parse_switch(text) for text in given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(epilog="Example: firedex controller --switch s1=0000000000000001:s1-eth3")
@click.option(
    "--switch",
    "switches",
    multiple=True,
    required=True,
    callback=_switch,
    metavar="NAME=DATAPATH_ID:PORT",
    help="A switch, and the port of it whose queues FireDeX sets. Repeat for more.",
)
@click.option("--listen", default="127.0.0.1:6653", show_default=True, help="For switches.")
@click.option("--api", default="127.0.0.1:8080", show_default=True, help="For the service.")
@click.option(
    "--framework",
    type=click.Choice(["os-ken", "ryu"]),
    help="Which OpenFlow framework; by default the one that is installed.",
)
def controller(
    switches: dict[str, tuple[int, str]], listen: str, api: str, framework: str | None
) -> None:
    """Run the OpenFlow controller beside the switches (needs root there, for their queues)."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    api_host, _, api_port = api.rpartition(":")
    settings = ControllerSettings(switches=switches, api_host=api_host, api_port=int(api_port))
    os.environ.update(settings.to_environment())
    if framework:
        os.environ["FIREDEX_OPENFLOW"] = framework
    # Only now: importing it chooses and patches the framework.
    from firedex_controller.framework import run

    host, _, port = listen.rpartition(":")
    run("firedex_controller.app", host=host, port=int(port))
