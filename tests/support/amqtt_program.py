"""Run aMQTT, a broker written in Python, on a port; print ``ready`` when it accepts connections."""

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


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
