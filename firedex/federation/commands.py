"""``firedex federator`` and ``firedex federation``."""

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firedex.federation.announcement_log import AnnouncementLogError
from firedex.federation.federator import Federator, FederatorOptions
from firedex.federation.journal import JournalError
from firedex.federation.links import Security
from firedex.federation.metrics import serve_metrics
from firedex.federation.observer import NoAnswer, ask
from firedex.federation.settings import FederationFile, read_federation
from firedex.scenario.yaml_file import InvalidFile, UnreadableFile
from firedex.system.options import HOST_PORT
from firedex.wire.addresses import parse_host_port

if TYPE_CHECKING:
    from firedex.certificates.invitations import Invitation

__all__ = ["federation", "federator"]

FILE = click.Path(dir_okay=False, path_type=Path)


def _read(path: Path) -> FederationFile:
    try:
        return read_federation(path)
    except (InvalidFile, UnreadableFile) as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)


def _security(
    file: FederationFile, path: Path, site: str, fingerprints: Mapping[str, str] | None = None
) -> Security | None:
    if file.security is None or file.security.certificates is None:
        return None
    from firedex.certificates.site_credentials import CredentialsError, read_credentials

    authorities = {entry.id: entry.authority for entry in file.sites if entry.authority}
    try:
        return read_credentials(
            path.resolve().parent / file.security.certificates,
            site,
            authorities=authorities or None,
            accepts_other_sites=file.membership == "open",
            fingerprints=fingerprints,
        )
    except CredentialsError as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)


def _invitations(
    file: FederationFile, options: Sequence[str], site: str
) -> "tuple[Invitation, ...]":
    """Return the invitations of the file and of the option ``--join``."""
    if not (file.join or options):
        return ()
    from firedex.certificates.invitations import invitation_problem, parse_invitation

    found = [parse_invitation(text) for text in file.join]
    for text in options:
        try:
            invitation = parse_invitation(text)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--join") from error
        problem = invitation_problem(invitation, has_certificates=file.has_certificates)
        if problem:
            raise click.BadParameter(problem, param_hint="--join")
        found.append(invitation)
    if any(invitation.site == site for invitation in found):
        raise click.BadParameter(
            f"an invitation names this site ({site}); use an invitation of another site",
            param_hint="--join",
        )
    return tuple(found)


@click.command(epilog="Example: firedex federator federation.yaml --site port --state port.state")
@click.argument("file", type=FILE)
@click.option("--site", required=True, help="Site that this federator belongs to.")
@click.option("--join", metavar="INVITATION", multiple=True,
              help="Join a running federation through the site of this invitation, which "
                   "`firedex certificates invite` prints. FILE then needs to list only this "
                   "site. Can be given several times.")  # fmt: skip
@click.option("--state", type=click.Path(file_okay=False, path_type=Path),
              help="Folder of the journal. Without it, QoS 1 and 2 events do not survive a crash "
                   "of the federator.")  # fmt: skip
@click.option("--token", envvar="FIREDEX_TOKEN",
              help="Token for the configuration service of the site.")  # fmt: skip
@click.option("--metrics", type=HOST_PORT,
              help="Address for Prometheus metrics, /status and /health over HTTP.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True,
              help="Print one JSON object for each event (ready, site up, site down).")  # fmt: skip
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info",
              show_default=True, help="Lowest level of the messages that are logged.")  # fmt: skip
def federator(
    file: Path,
    site: str,
    join: tuple[str, ...],
    state: Path | None,
    token: str | None,
    metrics: tuple[str, int] | None,
    as_json: bool,
    log_level: str,
) -> None:
    """Connect the broker of one site with the brokers of other sites.

    FILE is the federation file. It is the same at every site, except at a site that joins with an
    invitation (--join, or the key `join`): its file lists only itself. The federator prints "ready"
    when its links and its broker session are up, or after 5 seconds with those that are up.
    """
    logging.basicConfig(
        level=log_level.upper(),
        format=f"%(asctime)s {site} %(name)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    settings = _read(file)
    try:
        entry = settings.site(site)
    except LookupError as error:
        raise click.BadParameter(str(error), param_hint="--site") from error
    if entry.broker is None:
        raise click.BadParameter(f"site {site} has no broker in {file}", param_hint="--site")
    invitations = _invitations(settings, join, site)
    fingerprints = {entry.site: entry.fingerprint for entry in invitations if entry.fingerprint}
    folder = None
    if settings.announcement_log is not None:
        folder = file.resolve().parent / settings.announcement_log.folder
    options = FederatorOptions(
        site=site, state=state, token=token, invitations=invitations, announcement_log=folder
    )
    security = _security(settings, file, site, fingerprints)
    try:
        running = Federator(settings, options, security)
        _run_loop(_run(running, metrics, as_json))
    except KeyboardInterrupt:
        pass
    except (AnnouncementLogError, JournalError) as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        click.echo(f"firedex: cannot listen on {entry.listen}: {error}", err=True)
        sys.exit(2)


def _run_loop(main: Any) -> None:
    """Run with uvloop, which halves the time per hop, if it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _run(running: Federator, metrics: tuple[str, int] | None, as_json: bool) -> None:
    def ready(status: dict[str, Any]) -> None:
        if as_json:
            click.echo(json.dumps({"event": "ready", "site": status["site"],
                                   "links": [link["neighbour"] for link in status["own_links"]
                                             if link["up"]],
                                   "broker": status["broker"]["connected"]}))  # fmt: skip
        else:
            click.echo("ready")
        sys.stdout.flush()

    if as_json:
        running.on_site_change = _print_site_change
    stop = serve_metrics(running, metrics) if metrics is not None else None
    task = asyncio.create_task(running.run(ready))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        with suppress(asyncio.CancelledError):
            await task
    finally:
        if stop is not None:
            stop()


def _print_site_change(site: str, is_up: bool) -> None:
    click.echo(json.dumps({"event": "site up" if is_up else "site down", "site": site}))
    sys.stdout.flush()


@click.group(epilog="Example: firedex federation status federation.yaml")
def federation() -> None:
    """Show what the federators of a federation know and do."""


def _gather(path: Path, ask_as: str | None, only: str | None) -> dict[str, Any]:
    """Return the status of every site that answers."""
    file = _read(path)

    async def all_sites() -> dict[str, Any]:
        sites = [site for site in file.sites if only in (None, site.id)]
        answers = await asyncio.gather(
            *(
                ask(
                    parse_host_port(site.listen),
                    file.name,
                    {"query": "status"},
                    security=_security(file, path, ask_as or site.id),
                )
                for site in sites
            ),
            return_exceptions=True,
        )
        return {
            site.id: answer if isinstance(answer, dict) else {"site": site.id, "error": str(answer)}
            for site, answer in zip(sites, answers, strict=True)
        }

    return asyncio.run(all_sites())


_file_argument = click.argument("file", type=FILE)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_site_option = click.option("--site", help="Ask only the federator of this site.")
_as_option = click.option("--as", "ask_as", metavar="SITE",
                          help="Site whose certificate identifies this command. "
                               "Default: the certificate of each site that is asked.")  # fmt: skip


def _summary(answers: dict[str, Any]) -> dict[str, Any]:
    """Return sites, links, interest and journal sizes of the whole federation."""
    running = {name: answer for name, answer in answers.items() if "error" not in answer}
    links = {
        tuple(link["between"]): link["cost"]
        for answer in running.values()
        for link in answer["links"]
    }
    return {
        "sites": [
            {
                "id": name,
                "running": "error" not in answer,
                "error": answer.get("error"),
                "broker_connected": answer.get("broker", {}).get("connected"),
                "reachable": [
                    site["id"] for site in answer.get("sites", ()) if site["reachable"]
                ],
            }
            for name, answer in answers.items()
        ],
        "links": [
            {"between": list(between), "cost": cost} for between, cost in sorted(links.items())
        ],
        "interest": {name: answer["interest"]["local"] for name, answer in running.items()},
        "journal": {name: answer["journal"] for name, answer in running.items()},
        "refused_peers": {
            name: answer["refused_peers"] for name, answer in running.items()
            if answer["refused_peers"]
        },
        "counters": {name: answer["counters"] for name, answer in running.items()},
    }  # fmt: skip


@federation.command(epilog="Example: firedex federation status federation.yaml --json")
@_file_argument
@_site_option
@_as_option
@_json_option
def status(file: Path, site: str | None, ask_as: str | None, as_json: bool) -> None:
    """Show sites, links, interest and journal sizes.

    The exit code is 1 if a federator does not answer.
    """
    answers = _gather(file, ask_as, site)
    summary = _summary(answers)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        for entry in summary["sites"]:
            if not entry["running"]:
                click.echo(f"{entry['id']}: not running ({entry['error']})")
                continue
            journal = summary["journal"][entry["id"]]["events"]
            broker = "broker connected" if entry["broker_connected"] else "broker NOT connected"
            others = [name for name in entry["reachable"] if name != entry["id"]]
            click.echo(
                f"{entry['id']}: {broker}; reaches {', '.join(others) or 'no other site'}; "
                f"wants {len(summary['interest'][entry['id']])} filters; "
                f"{journal} events in the journal"
            )
        for link in summary["links"]:
            click.echo(f"link {link['between'][0]} - {link['between'][1]} (cost {link['cost']:g})")
        for name, refused in summary["refused_peers"].items():
            for entry in refused:
                click.echo(f"{name} refused {entry['peer']}: {entry['reason']}")
    sys.exit(0 if all(entry["running"] for entry in summary["sites"]) else 1)


@federation.command(epilog="Example: firedex federation sites federation.yaml")
@_file_argument
@_as_option
@_json_option
def sites(file: Path, ask_as: str | None, as_json: bool) -> None:
    """List the sites, and which other sites each of them reaches."""
    summary = _summary(_gather(file, ask_as, None))
    if as_json:
        click.echo(json.dumps(summary["sites"], indent=2))
        return
    for entry in summary["sites"]:
        state = "running" if entry["running"] else f"not running ({entry['error']})"
        click.echo(f"{entry['id']}: {state}; reaches {', '.join(entry['reachable']) or 'nothing'}")


@federation.command(epilog="Example: firedex federation links federation.yaml")
@_file_argument
@_as_option
@_json_option
def links(file: Path, ask_as: str | None, as_json: bool) -> None:
    """List the links that are up."""
    summary = _summary(_gather(file, ask_as, None))
    if as_json:
        click.echo(json.dumps(summary["links"], indent=2))
        return
    for link in summary["links"]:
        click.echo(f"{link['between'][0]} - {link['between'][1]} (cost {link['cost']:g})")


@federation.command(epilog="Example: firedex federation interest federation.yaml")
@_file_argument
@_as_option
@_json_option
def interest(file: Path, ask_as: str | None, as_json: bool) -> None:
    """List the filters that each site wants from the others, with their QoS."""
    summary = _summary(_gather(file, ask_as, None))
    if as_json:
        click.echo(json.dumps(summary["interest"], indent=2))
        return
    for name, filters in summary["interest"].items():
        for filter_name, qos in sorted(filters.items()):
            click.echo(f"{name}: {filter_name} (QoS {qos})")


@federation.command(
    epilog="Example: firedex federation trace federation.yaml smoke/floor1 --from port"
)
@_file_argument
@click.argument("topic")
@click.option("--from", "source", required=True, help="Site at which the event would be published.")
@_as_option
@_json_option
def trace(file: Path, topic: str, source: str, ask_as: str | None, as_json: bool) -> None:
    """Follow a probe on the path that an event on TOPIC takes, and print the time of each hop.

    The probe is not published at any broker. Times are differences between the clocks of two
    federators, so they include the error of these clocks.
    """
    settings = _read(file)
    try:
        entry = settings.site(source)
    except LookupError as error:
        raise click.BadParameter(str(error), param_hint="--from") from error
    try:
        answer = asyncio.run(
            ask(
                parse_host_port(entry.listen),
                settings.name,
                {"query": "trace", "topic": topic},
                security=_security(settings, file, ask_as or source),
            )
        )
    except NoAnswer as error:
        click.echo(f"firedex: site {source}: {error}", err=True)
        sys.exit(1)
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    if not answer["destinations"]:
        click.echo(f"no other site that can be reached wants {topic}")
    for result in answer["results"]:
        hops = result["hops"]
        parts = [hops[0][0]]
        for (_, before), (name, after) in pairwise(hops):
            parts.append(f"{(after - before) * 1000:.2f} ms -> {name}")
        click.echo("  ".join(parts))
    missing = set(answer["destinations"]) - {result["site"] for result in answer["results"]}
    for name in sorted(missing):
        click.echo(f"no answer from {name}")
