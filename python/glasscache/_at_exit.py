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


def _send_all() -> None:
    for client in list(clients):
        client.send_gathered()


def _finalize_with(util: Any) -> None:
    util.Finalize(None, _send_all, exitpriority=0)


def _in_child() -> None:
    # The finalizers of the parent are cleared after this, and these are called after that.
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(util, _finalize_with)


atexit.register(_send_all)
os.register_at_fork(after_in_child=_in_child)
if "multiprocessing.util" in sys.modules:  # this may be such a child already
    _finalize_with(sys.modules["multiprocessing.util"])
