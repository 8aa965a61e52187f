"""Program that runs aMQTT, a broker in Python for MQTT 3.1.1. Arguments: HOST PORT."""

import asyncio
import sys
from typing import Any

from amqtt.broker import Broker
from amqtt.mqtt.connect import ConnectPacket, ConnectPayload

__all__: list[str] = []

MQTT_3 = 4


class _Mqtt3Payload(ConnectPayload):  # type: ignore[misc]  # aMQTT has no types
    """Payload of a CONNECT packet; that of MQTT 5 is not parsed.

    aMQTT would parse it as MQTT 3.1.1 and wait for more bytes. Without the payload it rejects the
    protocol version, and the client retries with MQTT 3.1.1.
    """

    @classmethod
    async def from_stream(cls, reader: Any, fixed_header: Any, variable_header: Any) -> Any:
        """Return the payload, or an empty one for other protocol versions."""
        if variable_header is not None and variable_header.proto_level != MQTT_3:
            return ConnectPayload(client_id="refused")
        return await super().from_stream(reader, fixed_header, variable_header)


async def _run(host: str, port: str) -> None:
    ConnectPacket.PAYLOAD = _Mqtt3Payload
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
