"""Client objects lent to one caller at a time, for programs with a client class of their own."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


class ClientPool:
    """Makes clients when all it has are lent; how many connections there are is the clients' affair."""

    def __init__(self, make_client: Callable[[], Any]) -> None:
        """Begin with no clients."""
        self._make_client = make_client
        self._lock = threading.Lock()
        self._free: list[Any] = []
        self._used: list[Any] = []

    @property
    def used(self) -> tuple[Any, ...]:
        """The clients that are lent."""
        return tuple(self._used)

    @property
    def free(self) -> tuple[Any, ...]:
        """The clients that are not."""
        return tuple(self._free)

    def get(self) -> Any:
        """Lend a client until `release` or `destroy`."""
        with self._lock:
            client = self._free.pop() if self._free else self._make_client()
            self._used.append(client)
        return client

    def release(self, client: Any) -> None:
        """Take a client back."""
        with self._lock:
            self._used.remove(client)
            self._free.append(client)

    def destroy(self, client: Any) -> None:
        """Take a client back and close it."""
        with self._lock:
            self._used.remove(client)
        client.close()

    def clear(self) -> None:
        """Close all clients."""
        with self._lock:
            all_clients = [*self._used, *self._free]
            self._used.clear()
            self._free.clear()
        for client in all_clients:
            client.close()

    @contextlib.contextmanager
    def get_and_release(self, destroy_on_fail: bool = False) -> Generator[Any]:
        """Lend a client for a block; one whose block raised is closed if `destroy_on_fail`."""
        client = self.get()
        try:
            yield client
        except BaseException:
            (self.destroy if destroy_on_fail else self.release)(client)
            raise
        self.release(client)
