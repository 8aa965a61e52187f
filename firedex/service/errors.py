"""The exceptions of the configuration service.

::

    ServiceError
    ├── PortsExhausted    an address has no local ports left for another flow
    └── PushFailed        the controller did not take the rules; the previous configuration stands
"""

__all__ = ["PortsExhausted", "PushFailed", "ServiceError"]


class ServiceError(Exception):
    """The root of what the service raises."""


class PortsExhausted(ServiceError):
    """No local ports left."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(f"no local ports are left on {address} for another flow")


class PushFailed(ServiceError):
    """The network does not follow."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"kept, but the network does not follow: {detail}")
