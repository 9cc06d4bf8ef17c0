"""pylibmc's pools, for programs that lend clients to threads."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.compat.pylibmc._base_client import ClientBase


class ClientPool(queue.Queue[Any]):
    """A number of clients, one at a time for each user; here they could share one."""

    def __init__(self, mc: ClientBase | None = None, n_slots: int = 0) -> None:
        """Make a pool of `n_slots` clones of `mc`."""
        super().__init__(n_slots)
        if mc is not None and n_slots:
            self.fill(mc, n_slots)

    @contextlib.contextmanager
    def reserve(self, block: bool = False) -> Generator[Any]:
        """Lend a client; queue.Empty when all are lent and block is false."""
        mc = self.get(block)
        try:
            yield mc
        finally:
            self.put(mc)

    def fill(self, mc: ClientBase, n_slots: int) -> None:
        """Put in this many clones."""
        for _ in range(n_slots):
            self.put(mc.clone())


class ThreadMappedPool(dict[int, Any]):
    """A ClientBase for each thread; here they could share one."""

    def __new__(cls, master: ClientBase) -> Self:  # noqa: ARG004 - `__init__` takes it
        return super().__new__(cls)

    def __init__(self, master: ClientBase) -> None:
        """Make a pool of clones of `master`."""
        super().__init__()
        self.master = master

    @property
    def current_key(self) -> int:
        """The thread's identity."""
        return threading.get_ident()

    @contextlib.contextmanager
    def reserve(self) -> Generator[Any]:
        """Lend this thread's client."""
        key = self.current_key
        mc = self.pop(key, None)
        if mc is None:
            mc = self.master.clone()
        try:
            yield mc
        finally:
            self[key] = mc

    def relinquish(self) -> Any:
        """Give up this thread's client."""
        return self.pop(self.current_key, None)
