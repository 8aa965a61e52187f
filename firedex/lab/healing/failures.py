"""Which sites fail in a round, and where events are published. Pure."""

import random
from dataclasses import dataclass

from firedex_emulation.site_networks.network import SiteNetwork

__all__ = ["FailureChoice", "choose_failure"]

ATTEMPTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureChoice:
    """The sites that fail, and the sites where events are published; both in order of sites."""

    failed: tuple[str, ...]
    publishers: tuple[str, ...]


def choose_failure(
    network: SiteNetwork,
    generator: random.Random,
    *,
    failed: int | tuple[str, ...],
    publishers: int,
) -> FailureChoice:
    """Choose the failed sites of a round, or use the given ones, and choose the publishers.

    The remaining sites stay connected, because an event cannot cross a partition. Publishers
    are among them. ValueError if the network has no such choice.
    """
    for _ in range(ATTEMPTS):
        chosen = generator.sample(network.sites, failed) if isinstance(failed, int) else failed
        parts = network.parts(chosen)
        if len(parts) == 1 and len(parts[0]) >= 2:
            sources = generator.sample(parts[0], min(publishers, len(parts[0])))
            return FailureChoice(
                failed=tuple(site for site in network.sites if site in chosen),
                publishers=tuple(site for site in network.sites if site in sources),
            )
        if not isinstance(failed, int):
            break
    raise ValueError(
        f"{network.name}: no choice of failed sites ({failed}) keeps the remaining sites connected"
    )
