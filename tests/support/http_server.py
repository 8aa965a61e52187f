"""A small HTTP server whose responses a test chooses, and certificates for TLS."""

import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["Handler", "Respond", "make_certificate", "serve_http"]


class Handler(BaseHTTPRequestHandler):
    """One request; ``body`` is its content."""

    protocol_version = "HTTP/1.1"
    body = b""

    def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a complete response; underscores in header names become hyphens."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def start_event_stream(self) -> None:
        """Send the headers of a stream of server-sent events."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Do not print requests."""


Respond = Callable[[Handler], None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Do not print a traceback for a client that closed its connection."""


@contextmanager
def serve_http(respond: Respond, *, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve requests with ``respond`` and yield the URL of the server."""

    class _Handler(Handler):
        def _handle(self) -> None:
            self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            respond(self)

    for method in ("GET", "PUT", "POST", "DELETE"):
        setattr(_Handler, f"do_{method}", _Handler._handle)

    with _Server(("127.0.0.1", 0), _Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            scheme = "http" if tls is None else "https"
            yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(60)


def make_certificate(folder: Path) -> Path:
    """Create a self-signed certificate for 127.0.0.1 and its key, in one file."""
    key, file = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        + ["-nodes", "-keyout", str(key), "-out", str(file), "-days", "2"]
        + ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    file.write_text(file.read_text() + key.read_text())
    return file
