"""The end of a process: what its clients and recorders hold back is sent and written before it.

`atexit` covers a program and the children that `multiprocessing` spawns. A child that it forks ends by
`os._exit`, and calls its own finalizers before.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Any

__all__ = ["clients", "recorders"]

clients: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those that are in use; a client that is collected sends the quiet writes that it has buffered by itself."""

recorders: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those that are in use; a recorder that is collected completes its log by itself."""


def _flush_all() -> None:
    for client in list(clients):
        client._flush_at_exit()  # noqa: SLF001 - of this package
    for recorder in list(recorders):
        recorder._close_at_exit()  # noqa: SLF001 - likewise


def _register_finalizer(util: Any) -> None:
    util.Finalize(None, _flush_all, exitpriority=0)


def _after_fork_in_child() -> None:
    # The finalizers of the parent are cleared after this, and these are called after that.
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(util, _register_finalizer)


atexit.register(_flush_all)
os.register_at_fork(after_in_child=_after_fork_in_child)
if "multiprocessing.util" in sys.modules:  # this may be such a child already
    _register_finalizer(sys.modules["multiprocessing.util"])
