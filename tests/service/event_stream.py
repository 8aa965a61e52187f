"""An event stream of the service, as its clients hold one."""

import contextlib
import http.client
import json
import socket
import threading
from typing import Any

from service_site import Client


class Stream:
    """An event stream, read line by line in a thread."""

    def __init__(self, client: Client, query: str = "") -> None:
        self._connection = http.client.HTTPConnection(client.host, client.port, timeout=30)
        headers = {"Authorization": f"Bearer {client.token}"} if client.token else {}
        self._connection.request("GET", f"/v1/events{query}", headers=headers)
        self._socket = self._connection.sock
        self.response = self._connection.getresponse()
        self.events: list[dict[str, Any]] = []
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        event: dict[str, Any] = {}
        while line := self.response.readline().decode():
            name, _, value = line.strip().partition(": ")
            if name in ("id", "event"):
                event[name] = value
            elif name == "data":
                event["data"] = json.loads(value)
            elif not line.strip() and event:
                self.events.append(event)
                event = {}
        self.ended.set()

    def of(self, kind: str) -> list[Any]:
        return [event["data"] for event in self.events if event["event"] == kind]

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the service has left already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._connection.close()
