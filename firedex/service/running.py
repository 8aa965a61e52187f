"""A service put together and run: database, planner, requests, one socket."""

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

from firedex.service.controller_client import ControllerLink
from firedex.service.core import ConfigurationService, ServiceOptions
from firedex.service.database import Database
from firedex.service.errors import ServiceError
from firedex.service.network_watch import NetworkWatch
from firedex.service.planner_loop import PlannerJob
from firedex.service.planner_pace import PaceSettings
from firedex.service.planner_process import PlannerProcess, ThreadedPlanner
from firedex.service.server import ServiceServer

__all__ = ["RunningService", "ServeOptions", "running_service", "serve_until_stopped"]

log = logging.getLogger("firedex.service")
BACKLOG = 2048
GRACE_SECONDS = 2
HUNG_SECONDS = 30
PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where it listens, keeps its state, finds the controller, and who plans where."""

    service: ServiceOptions
    state: str
    host: str = "127.0.0.1"
    port: int = 0
    controller: ControllerLink | None = None
    pace: PaceSettings = field(default_factory=PaceSettings)
    planner: Literal["process", "thread"] = "process"
    certificate: Path | None = None
    key: Path | None = None

    def job(self) -> PlannerJob:
        """What the planner needs of it."""
        return PlannerJob(
            settings=self.service.settings,
            state=self.state,
            controller=self.controller,
            pace=self.pace,
        )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; OSError says why not."""
    # With its protocol named, or asyncio leaves Nagle on: 40 ms for every answer.
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Who takes nothing for so long is let go by the kernel; nobody else can take back what waits.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, HUNG_SECONDS * 1000)
    try:
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    made.listen(BACKLOG)
    return made


def _server(options: ServeOptions, service: ConfigurationService) -> uvicorn.Server:
    config = uvicorn.Config(
        ServiceServer(service),
        http="httptools",
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_SECONDS,
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
        return PlannerProcess(options.job(), service.notice)
    return ThreadedPlanner(options.job(), database, service.notice)


def _allow_many_files() -> None:
    """Every stream is an open file; the usual limit of 1024 is too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve_until_stopped(options: ServeOptions, listening: socket.socket) -> None:
    """Serve until the process is told to end."""
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
    """A service that runs in this process."""

    url: str
    service: ConfigurationService


@contextmanager
def running_service(options: ServeOptions) -> Iterator[RunningService]:
    """Serve in threads of this process, for as long as the context lasts."""
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
        until = time.monotonic() + PATIENCE_SECONDS
        while not server.started:
            if time.monotonic() > until or not thread.is_alive():
                raise ServiceError("the service does not start")
            time.sleep(0.005)
        scheme = "https" if options.certificate else "http"
        host, port = listening.getsockname()
        yield RunningService(f"{scheme}://{host}:{port}", service)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)
        planner.stop()
        database.close()
