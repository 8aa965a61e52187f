"""The exceptions of the configuration service.

::

    ServiceError
    ├── Refused            a request that is not granted; knows its HTTP status
    │   ├── Conflict       409  the request does not fit the state or the site
    │   │   └── PortsExhausted   an address has no local ports left for another flow
    │   ├── Unknown        404  there is no such thing
    │   ├── Changed        412  somebody else has changed it meanwhile
    │   ├── NotYours       403  the token does not allow it
    │   ├── NoToken        401  no token, or one that is not valid
    │   ├── TooSlow        408  a request that did not come to its end
    │   ├── TooLarge       413  more than is kept of anybody
    │   ├── TooMuch        429  too many requests; says when to come again
    │   └── KeyReused      422  an idempotency key that stood for another request
    ├── PushFailed         the controller did not take the rules; the previous configuration stands
    └── StateError         the database cannot be used
        ├── PlannedElsewhere   another planner is at work on it
        └── LockLost           the planner's lock is no longer ours
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

__all__ = [
    "Changed",
    "Conflict",
    "KeyReused",
    "LockLost",
    "NoToken",
    "NotYours",
    "PlannedElsewhere",
    "PortsExhausted",
    "PushFailed",
    "Refused",
    "ServiceError",
    "StateError",
    "TooLarge",
    "TooMuch",
    "TooSlow",
    "Unknown",
]


class ServiceError(Exception):
    """The root of what the service raises."""


class Refused(ServiceError):
    """A request that is not granted; ``headers`` go with the answer."""

    status = 400
    headers: Mapping[str, str] = MappingProxyType({})


class Conflict(Refused):
    """The request is well-formed, but does not fit what is there."""

    status = 409


class PortsExhausted(Conflict):
    """No local ports left."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(f"no local ports are left on {address} for another flow")


class Unknown(Refused):
    """There is no such thing."""

    status = 404


class Changed(Refused):
    """The caller has seen another version than there is."""

    status = 412


class NotYours(Refused):
    """Beyond what the token allows."""

    status = 403


class NoToken(Refused):
    """Nobody known."""

    status = 401
    headers = MappingProxyType({"WWW-Authenticate": "Bearer"})


class TooSlow(Refused):
    """Waited for long enough."""

    status = 408


class TooLarge(Refused):
    """Too long."""

    status = 413


class TooMuch(Refused):
    """Too many requests."""

    status = 429

    def __init__(self, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        self.headers = {"Retry-After": str(math.ceil(wait_seconds))}
        super().__init__(f"too many requests; come again in {wait_seconds:.1f} s")


class KeyReused(Refused):
    """The same idempotency key, but not the same request."""

    status = 422


class PushFailed(ServiceError):
    """The network does not follow."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"the network does not follow: {detail}")


class StateError(ServiceError):
    """The database cannot be used."""


class PlannedElsewhere(StateError):
    """One database has one planner, and this is not it."""

    def __init__(self) -> None:
        super().__init__("another service plans on this state")


class LockLost(StateError):
    """Somebody else may be planning by now."""

    def __init__(self) -> None:
        super().__init__("the planner's lock was lost")
