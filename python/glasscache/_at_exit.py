"""The end of a process: the quiet writes that its clients have gathered are sent before it.

`atexit` covers a program and the children that `multiprocessing` spawns. A child that it forks ends by
`os._exit`, and calls its own finalizers before.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Any

__all__ = ["clients"]

clients: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those that are in use; a client that is collected sends what it has by itself."""


def _flush_all_clients() -> None:
    for client in list(clients):
        client.send_gathered()


def _register_finalizer(util: Any) -> None:
    util.Finalize(None, _flush_all_clients, exitpriority=0)


def _after_fork_in_child() -> None:
    # The finalizers of the parent are cleared after this, and these are called after that.
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(util, _register_finalizer)


atexit.register(_flush_all_clients)
os.register_at_fork(after_in_child=_after_fork_in_child)
if "multiprocessing.util" in sys.modules:  # this may be such a child already
    _register_finalizer(sys.modules["multiprocessing.util"])
