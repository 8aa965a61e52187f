"""The exceptions of the configuration service.

::

    ServiceError
    ├── RequestError                  the request is rejected; carries its HTTP status
    │   ├── BadRequest           400  the request is malformed
    │   ├── Unauthorized         401  the token is missing or invalid
    │   ├── Forbidden            403  the token does not permit the request
    │   ├── NotFound             404  the resource does not exist
    │   ├── RequestTimeout       408  the request body did not arrive in time
    │   ├── Conflict             409  the request conflicts with the current state or network
    │   │   └── PortsExhausted        an address has no free local ports for another flow
    │   ├── PreconditionFailed   412  the resource has another revision than the caller expects
    │   ├── PayloadTooLarge      413  the request body is too large
    │   ├── UnsupportedMediaType 415  the request body is not JSON
    │   ├── IdempotencyKeyReused 422  the idempotency key belongs to another request
    │   ├── RateLimited          429  too many requests; carries the time to wait
    │   └── Unavailable          503  temporarily unavailable; carries the time to wait
    ├── PushFailed                    the controller rejected the rules or did not answer
    └── StateError                    the database cannot be used
        ├── PlannerAlreadyRunning     another planner holds the lock
        └── LockLost                  this planner no longer holds the lock
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

__all__ = [
    "BadRequest",
    "Conflict",
    "Forbidden",
    "IdempotencyKeyReused",
    "LockLost",
    "NotFound",
    "PayloadTooLarge",
    "PlannerAlreadyRunning",
    "PortsExhausted",
    "PreconditionFailed",
    "PushFailed",
    "RateLimited",
    "RequestError",
    "RequestTimeout",
    "ServiceError",
    "StateError",
    "Unauthorized",
    "Unavailable",
    "UnsupportedMediaType",
]

RETRY_SECONDS = 5.0


class ServiceError(Exception):
    """Base class of all exceptions of the service."""


class RequestError(ServiceError):
    """The request is rejected with ``status``; ``headers`` are added to the response."""

    status = 400
    headers: Mapping[str, str] = MappingProxyType({})


class BadRequest(RequestError):
    """The request is malformed."""


class Unauthorized(RequestError):
    """The token is missing or invalid."""

    status = 401
    headers = MappingProxyType({"WWW-Authenticate": "Bearer"})


class Forbidden(RequestError):
    """The token does not permit the request."""

    status = 403


class NotFound(RequestError):
    """The resource does not exist."""

    status = 404


class RequestTimeout(RequestError):
    """The request body did not arrive in time."""

    status = 408


class Conflict(RequestError):
    """The request is valid, but conflicts with the current state or the network of the site."""

    status = 409


class PortsExhausted(Conflict):
    """The address has no free local ports for another flow."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(f"{address} has no free local ports for another flow")


class PreconditionFailed(RequestError):
    """The resource has another revision than the caller expects."""

    status = 412


class PayloadTooLarge(RequestError):
    """The request body is too large."""

    status = 413


class UnsupportedMediaType(RequestError):
    """The request body is not JSON."""

    status = 415


class IdempotencyKeyReused(RequestError):
    """The idempotency key was used before, with another request."""

    status = 422


class RateLimited(RequestError):
    """Too many requests; the caller may retry after ``wait_seconds``."""

    status = 429

    def __init__(self, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        self.headers = {"Retry-After": str(math.ceil(wait_seconds))}
        super().__init__(f"too many requests; retry in {wait_seconds:.1f} s")


class Unavailable(RequestError):
    """The service cannot answer at present; the caller may retry."""

    status = 503
    headers = MappingProxyType({"Retry-After": f"{RETRY_SECONDS:g}"})


class PushFailed(ServiceError):
    """The controller rejected the rules or did not answer."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"the configuration could not be applied to the network: {detail}")


class StateError(ServiceError):
    """The database cannot be used."""


class PlannerAlreadyRunning(StateError):
    """Another planner holds the lock; a database has one planner."""

    def __init__(self) -> None:
        super().__init__("another service with a planner uses this database")


class LockLost(StateError):
    """The planner lost its lock, so another planner may be running."""

    def __init__(self) -> None:
        super().__init__("the planner has lost its lock on the database")
