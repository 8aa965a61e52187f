"""Recorded times of the thesis on self-managed MQTT federation, and the cases that it tested.

J. F. de Lacerda Machado Jr., "Client-Transparent and Self-Managed MQTT Broker Federation at the
Application Layer", master's thesis, Universidade Federal do Rio Grande do Sul, June 2023, sections
5.1 and 5.2. The thesis states times in minutes, in words and without a number of repetitions. It
names two of them: until the *overlay network* of its wrappers has converged, and until the *topic
mesh* has, so that events arrive again. The second is the one to compare with a gap at a subscriber.

Its section 5.2 tests six wrappers with number 3, and with numbers 1 and 3, removed; fifteen with
one to four removed at random; and twenty-five with up to eight removed at random.
"""

from dataclasses import dataclass

__all__ = ["CASES", "CITATION", "COLD_START", "PARTITION", "FailureCase", "ThesisTime"]

CITATION = (
    'J. F. de Lacerda Machado Jr., "Client-Transparent and Self-Managed MQTT Broker Federation at '
    "the Application Layer\", master's thesis, UFRGS, Porto Alegre, June 2023, sections 5.1 and 5.2"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThesisTime:
    """A time as the thesis states it: in words, and as a range in seconds."""

    text: str
    low_seconds: float
    high_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCase:
    """Sites that fail: given ones, or a number of sites chosen at random in each round.

    ``overlay`` and ``topics`` are the times of the thesis; None if it has no such case.
    """

    sites: int
    failed: int | tuple[str, ...]
    overlay: ThesisTime | None = None
    topics: ThesisTime | None = None

    @property
    def count(self) -> int:
        """The number of sites that fail."""
        return self.failed if isinstance(self.failed, int) else len(self.failed)

    @property
    def name(self) -> str:
        """The case in words."""
        chosen = "" if isinstance(self.failed, int) else f" ({', '.join(self.failed)})"
        return f"{self.count} of {self.sites}{chosen}"


_ABOUT_1 = ThesisTime(text="about 1 minute", low_seconds=60, high_seconds=60)
_ABOUT_2 = ThesisTime(text="about 2 minutes", low_seconds=120, high_seconds=120)
_UP_TO_2 = ThesisTime(text="up to 2 minutes", low_seconds=60, high_seconds=120)
_2_TO_3 = ThesisTime(text="2 to 3 minutes", low_seconds=120, high_seconds=180)
_2_TO_5 = ThesisTime(text="2 to 5 minutes", low_seconds=120, high_seconds=300)

COLD_START = ThesisTime(text="can exceed 1 minute", low_seconds=60, high_seconds=60)
"""Section 5.1, first convergence of the overlay network."""
PARTITION = ThesisTime(text="up to 5 minutes", low_seconds=60, high_seconds=300)
"""Section 5.1; section 5.2 adds at most half a minute in the part without the core."""

CASES: tuple[FailureCase, ...] = (
    FailureCase(sites=6, failed=("site3",), overlay=_ABOUT_1, topics=_ABOUT_2),
    FailureCase(sites=6, failed=("site1", "site3"), overlay=_ABOUT_1, topics=_ABOUT_2),
    FailureCase(sites=6, failed=3),
    *(
        FailureCase(sites=15, failed=number, overlay=_UP_TO_2, topics=_2_TO_3)
        for number in (1, 2, 3, 4)
    ),
    *(
        FailureCase(sites=25, failed=number, overlay=_2_TO_3, topics=_2_TO_5)
        for number in (1, 4, 8)
    ),
    FailureCase(sites=50, failed=16),
)
"""The cases of the thesis; three of six sites and the network of fifty are not in it."""
