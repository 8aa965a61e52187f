"""Runs aMQTT, a broker in Python that speaks MQTT 3.1.1, where it is told: HOST PORT."""

import asyncio
import sys

from amqtt.broker import Broker

__all__: list[str] = []


async def _run(host: str, port: str) -> None:
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"{host}:{port}"}},
            "plugins": {
                "amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}
            },
        }
    )
    await broker.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_run(*sys.argv[1:]))
