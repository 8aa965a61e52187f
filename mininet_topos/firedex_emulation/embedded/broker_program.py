"""Runs aMQTT, a broker in Python that speaks MQTT 3.1.1, where it is told: HOST PORT."""

import asyncio
import sys
from typing import Any

from amqtt.broker import Broker
from amqtt.mqtt.connect import ConnectPacket, ConnectPayload

__all__: list[str] = []

MQTT_3 = 4


class _OnlyOfMqtt3(ConnectPayload):  # type: ignore[misc]  # aMQTT has no types
    """aMQTT reads MQTT 5's CONNECT as one of 3.1.1, and waits for what never comes.

    Left unread, it goes on to refuse the protocol's level, by which clients know what to do.
    """

    @classmethod
    async def from_stream(cls, reader: Any, fixed_header: Any, variable_header: Any) -> Any:
        """The payload, where it can be read."""
        if variable_header is not None and variable_header.proto_level != MQTT_3:
            return ConnectPayload(client_id="refused")
        return await super().from_stream(reader, fixed_header, variable_header)


async def _run(host: str, port: str) -> None:
    ConnectPacket.PAYLOAD = _OnlyOfMqtt3
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"{host}:{port}"}},
            "plugins": {
                "amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}
            },
        }
    )
    await broker.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_run(*sys.argv[1:]))
