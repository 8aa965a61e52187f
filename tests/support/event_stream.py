"""A client of the service's event stream."""

import contextlib
import http.client
import json
import socket
import threading
from typing import Any

from tests.support.service_site import Client


class Stream:
    """An event stream, read line by line in a thread."""

    def __init__(self, client: Client, query: str = "") -> None:
        self._connection = http.client.HTTPConnection(client.host, client.port, timeout=60)
        headers = {"Authorization": f"Bearer {client.token}"} if client.token else {}
        self._connection.request("GET", f"/v1/events{query}", headers=headers)
        self._socket = self._connection.sock
        self.response = self._connection.getresponse()
        self.events: list[dict[str, Any]] = []
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):  # closed by either side
            self._read_events()
        self.ended.set()

    def _read_events(self) -> None:
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

    def data_of(self, kind: str) -> list[Any]:
        return [event["data"] for event in self.events if event["event"] == kind]

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the service has already closed it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._connection.close()
