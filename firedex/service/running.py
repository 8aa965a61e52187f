"""Running a service: database, planner and web server on one socket."""

import contextlib
import logging
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import uvicorn

from firedex.service.core import ConfigurationService, ServiceOptions
from firedex.service.errors import ServiceError
from firedex.service.insight.network_watch import NetworkWatch
from firedex.service.planner.loop import PlannerJob
from firedex.service.planner.process import PlannerProcess, ThreadedPlanner
from firedex.service.planner.schedule import ScheduleSettings
from firedex.service.state.database import Database
from firedex.service.web.server import create_server_app
from firedex.transport.http import HttpTarget

__all__ = ["RunningService", "ServeOptions", "running_service", "serve_until_stopped"]

log = logging.getLogger("firedex.service")
BACKLOG = 2048
SHUTDOWN_SECONDS = 2
TCP_USER_TIMEOUT_SECONDS = 30
START_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of a running service: addresses, database, controller, planner and TLS files."""

    service: ServiceOptions
    state: str
    host: str = "127.0.0.1"
    port: int = 0
    controller: HttpTarget | None = None
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    planner: Literal["process", "thread"] = "process"
    certificate: Path | None = None
    key: Path | None = None

    def job(self) -> PlannerJob:
        """Return the part of the options that the planner needs."""
        return PlannerJob(
            settings=self.service.settings,
            state=self.state,
            controller=self.controller,
            schedule=self.schedule,
        )


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise ``OSError`` if the address cannot be used."""
    # asyncio sets TCP_NODELAY only if the protocol is given; without it a response takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # The kernel closes connections whose peer acknowledges nothing for this long.
    listener.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_SECONDS * 1000
    )
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.listen(BACKLOG)
    return listener


def _server(options: ServeOptions, service: ConfigurationService) -> uvicorn.Server:
    config = uvicorn.Config(
        create_server_app(service),
        http="httptools",
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        timeout_keep_alive=30,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        server_header=False,
    )
    return uvicorn.Server(config)


def _planner(
    options: ServeOptions, database: Database, service: ConfigurationService
) -> PlannerProcess | ThreadedPlanner:
    if options.planner == "process":
        return PlannerProcess(options.job(), service.handle_notice)
    return ThreadedPlanner(options.job(), database, service.handle_notice)


def _allow_many_files() -> None:
    """Raise the limit of open files, because each event stream is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve_until_stopped(options: ServeOptions, listening: socket.socket) -> None:
    """Serve until the process receives SIGINT or SIGTERM."""
    _allow_many_files()
    database = Database(options.state)
    service = ConfigurationService(options.service, database)
    planner = _planner(options, database, service)
    service.planner = planner
    service.network_watch = NetworkWatch(options.controller)
    planner.start()
    try:
        _server(options, service).run(sockets=[listening])
    finally:
        planner.stop()
        database.close()


@dataclass(slots=True)
class RunningService:
    """A service that runs in threads of this process."""

    url: str
    service: ConfigurationService


@contextmanager
def running_service(options: ServeOptions) -> Iterator[RunningService]:
    """Serve in threads of this process until the context is left."""
    database = Database(options.state)
    service = ConfigurationService(options.service, database)
    planner = _planner(options, database, service)
    service.planner = planner
    service.network_watch = NetworkWatch(options.controller)
    listening = bind(options.host, options.port)
    server = _server(options, service)
    thread = threading.Thread(target=server.run, args=([listening],), name="service")
    planner.start()
    thread.start()
    try:
        until = time.monotonic() + START_TIMEOUT_SECONDS
        while not server.started:
            if time.monotonic() > until or not thread.is_alive():
                raise ServiceError("the service did not start in time")
            time.sleep(0.005)
        scheme = "https" if options.certificate else "http"
        host, port = listening.getsockname()
        yield RunningService(f"{scheme}://{host}:{port}", service)
    finally:
        server.should_exit = True
        thread.join(START_TIMEOUT_SECONDS)
        planner.stop()
        database.close()
