"""gevent and eventlet: how a call waits where they have replaced Python's sockets."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["greenlet_waits"]


def greenlet_waits() -> tuple[Callable[..., Any], Callable[[float], Any]] | None:
    """Return `select` and `sleep` of the library that has patched this process's sockets; None without one.

    To be called when a client is made: sockets are patched before anything else.
    """
    gevent_monkey: Any = sys.modules.get("gevent.monkey")
    if gevent_monkey is not None and gevent_monkey.is_module_patched("socket"):
        gevent = importlib.import_module("gevent")
        return importlib.import_module("gevent.select").select, gevent.sleep
    eventlet_patcher: Any = sys.modules.get("eventlet.patcher")
    if eventlet_patcher is not None and eventlet_patcher.is_monkey_patched("socket"):
        eventlet = importlib.import_module("eventlet")
        return importlib.import_module("eventlet.green.select").select, eventlet.sleep
    return None
