"""Who comes in: by which token, and how often an address may be wrong about its tokens."""

import hashlib
import threading

from firedex.service.errors import NoToken
from firedex.service.request_limits import RequestLimits
from firedex.service.tokens import Identity, Tokens

__all__ = ["Doorkeeper"]

MOST_REMEMBERED = 10_000


class Doorkeeper:
    """An address that was wrong too often waits, without anything being looked up for it.

    Not so who was right before: it may share the address with somebody who is not.
    """

    def __init__(self, tokens: Tokens, wrong: RequestLimits) -> None:
        self._tokens, self._wrong = tokens, wrong
        self._lock = threading.Lock()
        self._right: dict[bytes, None] = {}

    def identify(self, authorization: str | None, address: str) -> Identity:
        """Who a request is from, by its ``Authorization`` header."""
        shown = hashlib.sha256((authorization or "").encode()).digest()
        with self._lock:
            was_right = self._right.pop(shown, False) is None
        if not was_right:
            self._wrong.check(address)
        try:
            identity = self._tokens.identify(authorization)
        except NoToken:
            self._wrong.count(address)
            raise
        with self._lock:
            self._right[shown] = None
            if len(self._right) > MOST_REMEMBERED:
                del self._right[next(iter(self._right))]
        return identity
