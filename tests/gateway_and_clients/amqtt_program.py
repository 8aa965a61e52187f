"""Runs aMQTT, a broker in Python, on the port that is named; says when it is ready."""

import asyncio
import sys

from amqtt.broker import Broker


async def main(port: int) -> None:
    """Serve until killed."""
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
            "plugins": {
                "amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}
            },
        }
    )
    await broker.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(int(sys.argv[1])))
