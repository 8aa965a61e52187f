"""The filters of one connection: wanted, in force, on their way out. For every transport."""

from firedex_clients.flow_connection import Wanted

__all__ = ["ASK_AGAIN_SECONDS", "FlowFilters"]

ASK_AGAIN_SECONDS = 1.0
MOST_TIMES_ASKED_AGAIN = 5


class FlowFilters:
    """What a connection knows of its filters, whatever it speaks.

    A session that lasts keeps filters while the connection is down. One that is unwanted meanwhile,
    or whose unsubscription was not acknowledged, is *stale*: it must be unsubscribed when the
    connection is back, or its events would come for ever.
    """

    def __init__(self, *, lasting: bool) -> None:
        self.wanted: dict[str, Wanted] = {}
        self.granted: set[str] = set()
        self.leaving: dict[str, int] = {}
        self.connects = self.revision = 0
        self._lasting = lasting
        self._stale: set[str] = set()
        self._unsubscriptions: dict[int, str] = {}
        self._times_asked_again: dict[str, int] = {}

    @property
    def unsubscribing(self) -> bool:
        """Whether the broker has yet to acknowledge that a filter is wanted no more."""
        return bool(self._unsubscriptions or self._stale)

    def _add(self, wanted: Wanted) -> None:
        name = wanted.filter
        self.wanted[name] = wanted
        self.leaving.pop(name, None)
        self._stale.discard(name)
        self._times_asked_again.pop(name, None)
        for number in [n for n, each in self._unsubscriptions.items() if each == name]:
            del self._unsubscriptions[number]
        self.revision += 1

    def _remove(self, name: str, *, up: bool) -> bool:
        """Whether it was there; while the connection is down, that may have to be told later."""
        if self.wanted.pop(name, None) is None:
            return False
        self.granted.discard(name)
        self.revision += 1
        if not up and self._lasting and self.connects:
            self._stale.add(name)
        return True

    def _must_ask_again(self, name: str, granted_qos: int) -> bool:
        """Whether less was granted than is wanted; a gateway may be later than we with a plan.

        A broker that never grants more is asked a few times in vain.
        """
        if granted_qos >= self.wanted[name].qos:
            self._times_asked_again.pop(name, None)
            return False
        times = self._times_asked_again[name] = self._times_asked_again.get(name, 0) + 1
        return times <= MOST_TIMES_ASKED_AGAIN

    def _unsubscription_sent(self, name: str, number: int) -> None:
        self.revision += 1
        self.leaving[name] = self.revision
        self._unsubscriptions[number] = name

    def _unsubscription_acknowledged(self, number: int) -> tuple[str, int] | None:
        """The filter, and which of its times it was: for ``_has_left``, in a while."""
        name = self._unsubscriptions.pop(number, None)
        time_of = None if name is None else self.leaving.get(name)
        return None if name is None or time_of is None else (name, time_of)

    def _has_left(self, name: str, time_of: int) -> None:
        if self.leaving.get(name) == time_of:
            del self.leaving[name]
            self.revision += 1

    def _take_stale(self) -> list[str]:
        stale, self._stale = sorted(self._stale), set()
        return stale

    def _nothing_in_force(self) -> None:
        """The connection is lost."""
        if self._lasting:
            self._stale.update(self._unsubscriptions.values())
        self._unsubscriptions.clear()
        self.granted.clear()
        self.leaving.clear()
