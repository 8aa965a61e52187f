"""What is wrong with a datagram."""

__all__ = ["MalformedMessage"]


class MalformedMessage(Exception):
    """The bytes are no MQTT-SN message."""
