"""Authentication of requests by bearer token, and rate limits by token and by address."""

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from firedex.service.errors import RateLimited, Unauthorized
from firedex.service.state.tokens import Identity, Tokens

__all__ = ["Authenticator", "RequestLimits", "RequestRate"]

MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRate:
    """A token bucket: the average rate, and the number of requests that may come at once."""

    per_second: float = 50.0
    burst: float = 200.0


class RequestLimits:
    """Rate limits by name; no limits if ``rate`` is None."""

    def __init__(
        self, rate: RequestRate | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._clock = rate, clock
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def count(self, name: str) -> None:
        """Count a request of ``name``; raise `RateLimited` if there were too many."""
        self._take(name, cost=1.0)

    def check(self, name: str) -> None:
        """Raise `RateLimited` as ``count`` would, without counting a request."""
        self._take(name, cost=0.0)

    def _take(self, name: str, cost: float) -> None:
        if self._rate is None:
            return
        now = self._clock()
        with self._lock:
            left, at = self._buckets.pop(name, (self._rate.burst, now))
            left = min(left + (now - at) * self._rate.per_second, self._rate.burst)
            wait = (1.0 - left) / self._rate.per_second if left < 1.0 else 0.0
            self._buckets[name] = (left if wait else left - cost, now)
            if len(self._buckets) > MAX_REMEMBERED:
                del self._buckets[next(iter(self._buckets))]
        if wait:
            raise RateLimited(wait)


class Authenticator:
    """Identifies callers, and limits the failed attempts of an address.

    After too many failures an address is rejected before its token is looked up. Tokens that were
    valid before are exempt, because many callers may share an address.
    """

    def __init__(self, tokens: Tokens, failures: RequestLimits) -> None:
        self._tokens, self._failures = tokens, failures
        self._lock = threading.Lock()
        self._valid_before: dict[bytes, None] = {}

    def identify(self, authorization: str | None, address: str) -> Identity:
        """Return the identity of a request from its ``Authorization`` header."""
        digest = hashlib.sha256((authorization or "").encode()).digest()
        with self._lock:
            was_valid = self._valid_before.pop(digest, False) is None
        if not was_valid:
            self._failures.check(address)
        try:
            identity = self._tokens.identify(authorization)
        except Unauthorized:
            self._failures.count(address)
            raise
        with self._lock:
            self._valid_before[digest] = None
            if len(self._valid_before) > MAX_REMEMBERED:
                del self._valid_before[next(iter(self._valid_before))]
        return identity
