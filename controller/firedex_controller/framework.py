"""The one place that knows there are two frameworks: Ryu, and os-ken, its maintained continuation.

``FIREDEX_OPENFLOW`` chooses (``ryu`` or ``os-ken``); by default whichever is installed, os-ken
first. Must be imported before anything of either framework.
"""

import contextlib
import importlib
import importlib.util
import io
import os
import warnings
from types import ModuleType
from typing import Any

from firedex_controller.errors import FrameworkMissing

__all__ = [
    "FRAMEWORK",
    "Application",
    "handler",
    "hub",
    "library",
    "ofp_event",
    "ofproto",
    "parser",
    "run",
]

PACKAGES = {"os-ken": "os_ken", "ryu": "ryu"}


def _choose() -> str:
    wanted = os.environ.get("FIREDEX_OPENFLOW")
    if wanted is not None and wanted not in PACKAGES:
        raise FrameworkMissing(f"FIREDEX_OPENFLOW is {wanted!r}; it can be ryu or os-ken")
    for name in [wanted] if wanted else PACKAGES:
        if importlib.util.find_spec(PACKAGES[name]) is not None:
            return name
    raise FrameworkMissing(
        f"{wanted or 'os-ken'} is not installed: pip install 'firedex[controller]' brings os-ken"
    )


def _prepare(name: str) -> None:
    if name == "ryu":
        # Ryu 4.34 asks for a name that eventlet has dropped, and needs everything patched early.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import eventlet
            import eventlet.wsgi
        eventlet.wsgi.ALREADY_HANDLED = object()
        with contextlib.redirect_stderr(io.StringIO()):
            # It tells at length which locks it could not patch; none of them is used.
            eventlet.monkey_patch()


def _module(path: str) -> Any:
    found: ModuleType = importlib.import_module(f"{PACKAGES[FRAMEWORK]}.{path}")
    return found


def library(path: str) -> Any:
    """A module of the framework's own library, such as ``packet.lldp``."""
    return _module(f"lib.{path}")


FRAMEWORK = _choose()
_prepare(FRAMEWORK)

app_manager = _module("base.app_manager")
Application: Any = getattr(app_manager, "OSKenApp", None) or app_manager.RyuApp
hub = _module("lib.hub")
ofp_event = _module("controller.ofp_event")
handler = _module("controller.handler")
ofproto = _module("ofproto.ofproto_v1_3")
parser = _module("ofproto.ofproto_v1_3_parser")


def run(app: str, *, host: str, port: int) -> None:
    """Run the application ``app`` (a module path) until the process is ended."""
    configuration = _module("cfg")
    _module("controller.controller")
    configuration.CONF(
        args=["--ofp-listen-host", host, "--ofp-tcp-listen-port", str(port)],
        project="firedex",
        default_config_files=[],
    )
    manager = app_manager.AppManager.get_instance()
    manager.load_apps([app, f"{PACKAGES[FRAMEWORK]}.controller.ofp_handler"])
    contexts = manager.create_contexts()
    services = manager.instantiate_apps(**contexts)
    try:
        hub.joinall(services)
    finally:
        manager.close()
