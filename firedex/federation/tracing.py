"""Probes that follow the path of an event and report the time of each hop. No sockets."""

from collections.abc import Callable, Sequence
from typing import Any

from firedex.federation.frames import (
    MAX_HOPS,
    Destination,
    FrameType,
    MalformedFrame,
    RoutedFrame,
    decode_json,
    encode_content,
)
from firedex.federation.routing import Router

__all__ = ["Tracing"]


class Tracing:
    """Sends probes, passes those of others on, and collects the results of its own."""

    def __init__(self, router: Router, wall: Callable[[], float]) -> None:
        self._router, self._wall = router, wall
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {}

    def start(
        self, sites: Sequence[str], identifier: str, handler: Callable[[dict[str, Any]], None]
    ) -> None:
        """Send a probe to sites; ``handler`` gets the result of each."""
        self._handlers[identifier] = handler
        targets = tuple(Destination(site) for site in sites)
        frame = RoutedFrame(FrameType.TRACE, targets, MAX_HOPS, 0, False, b"")
        self._pass_on(frame, {"id": identifier, "source": self._router.site, "hops": []})

    def end(self, identifier: str) -> None:
        """Stop waiting for results."""
        self._handlers.pop(identifier, None)

    def receive_result(self, content: dict[str, Any]) -> None:
        """Handle the result of a destination."""
        handler = self._handlers.get(str(content.get("id")))
        if handler is not None:
            handler(content)

    def receive(self, frame: RoutedFrame) -> None:
        """Pass a probe on, and answer it if this site is a destination."""
        content = decode_json(frame.rest)
        hops = content.get("hops")
        if not isinstance(hops, list) or len(hops) > MAX_HOPS:
            raise MalformedFrame("a trace has no valid hops")
        own, onward = self._router.divide(frame)
        if onward is not None:
            self._pass_on(onward, content)
        if own is not None:
            result = {
                "kind": "trace-result",
                "id": content.get("id"),
                "site": self._router.site,
                "hops": [*hops, [self._router.site, self._wall()]],
            }
            self._router.send_message([str(content.get("source"))], result)

    def _pass_on(self, frame: RoutedFrame, content: dict[str, Any]) -> None:
        hops = [*content["hops"], [self._router.site, self._wall()]]
        rest = encode_content({**content, "hops": hops})
        self._router.send(frame._replace(rest=rest), droppable=False)
