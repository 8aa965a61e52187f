"""The exceptions of ``firedex up``.

::

    SiteUpError
    ├── AddressTaken     something listens already where a part is to listen
    └── PartNotStarted   a part ended, or did not answer in time, when the site came up
"""

__all__ = ["AddressTaken", "PartNotStarted", "SiteUpError"]


class SiteUpError(Exception):
    """The root of what is raised here."""


class AddressTaken(SiteUpError):
    """Something listens there already."""

    def __init__(self, part: str, address: str) -> None:
        self.part, self.address = part, address
        super().__init__(
            f"{part}: something listens on {address} already; if that is the {part}, give it by "
            f"address: '{part}: {{at: …}}'"
        )


class PartNotStarted(SiteUpError):
    """A part did not come up; its last words say why."""

    def __init__(self, part: str, why: str, last_words: str) -> None:
        self.part, self.why, self.last_words = part, why, last_words
        super().__init__(f"{part}: {why}" + (f"\n{last_words}" if last_words else ""))
