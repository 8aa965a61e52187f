"""The choice of the OpenFlow framework: Ryu, or os-ken, its maintained successor.

``FIREDEX_OPENFLOW`` chooses ``ryu`` or ``os-ken``; the default is the installed one, os-ken if both
are. No other module imports a framework, and this one must be imported before any of their modules.
"""

import contextlib
import importlib
import importlib.util
import io
import os
import sys
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


def _choose_framework() -> str:
    requested = os.environ.get("FIREDEX_OPENFLOW")
    if requested is not None and requested not in PACKAGES:
        raise FrameworkMissing(f"FIREDEX_OPENFLOW must be ryu or os-ken, not {requested!r}")
    for name in [requested] if requested else PACKAGES:
        if importlib.util.find_spec(PACKAGES[name]) is not None:
            return name
    raise FrameworkMissing(
        f"{requested or 'os-ken'} is not installed; install os-ken with: "
        "pip install 'firedex[controller]'"
    )


def _prepare_framework(name: str) -> None:
    if name == "ryu":
        # Ryu 4.34 uses a name that eventlet has removed, and needs the patched standard library.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import eventlet
            import eventlet.wsgi
        eventlet.wsgi.ALREADY_HANDLED = object()
        with contextlib.redirect_stderr(io.StringIO()):
            # eventlet prints a list of locks that it could not patch; none of them is used.
            eventlet.monkey_patch()
        # httpcore imports trio if it is installed, and trio fails to import with patched sockets.
        sys.modules.setdefault("trio", None)  # type: ignore[arg-type]  # "not installed"


def _module(path: str) -> Any:
    module: ModuleType = importlib.import_module(f"{PACKAGES[FRAMEWORK]}.{path}")
    return module


def library(path: str) -> Any:
    """Import a module of the framework's library, such as ``packet.lldp``."""
    return _module(f"lib.{path}")


FRAMEWORK = _choose_framework()
_prepare_framework(FRAMEWORK)

app_manager = _module("base.app_manager")
Application: Any = getattr(app_manager, "OSKenApp", None) or app_manager.RyuApp
hub = _module("lib.hub")
ofp_event = _module("controller.ofp_event")
handler = _module("controller.handler")
ofproto = _module("ofproto.ofproto_v1_3")
parser = _module("ofproto.ofproto_v1_3_parser")


def run(app: str, *, host: str, port: int) -> None:
    """Run the application in the module ``app`` until the process ends."""
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
