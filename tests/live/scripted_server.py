"""A server whose replies a test scripts, and a relay to a server: a thread for each connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

CHUNK_BYTES = 1 << 16


class ScriptedServer:
    """Listens on a free port, or on a unix socket; closed at the end of a `with` block.

    `serve` has a thread for each connection, which is closed when it returns; without one, connections are
    accepted and read, and nothing is sent.
    """

    def __init__(
        self, serve: Callable[[socket.socket], object] | None = None, path: str | None = None
    ) -> None:
        self._serve = serve or self._read_to_end
        self._path, self.port = path, 0
        self._lock = threading.Lock()
        self._is_closed = False
        self.connections: set[socket.socket] = set()
        self.listen()

    def listen(self) -> None:
        """Listen, again on the same port after `close`."""
        if self._path is not None:
            self._listener = socket.create_server(self._path, family=socket.AF_UNIX)
        else:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=1000)
            self.port = self._listener.getsockname()[1]
        with self._lock:
            self._is_closed = False
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    @property
    def address(self) -> str:
        return self._path or f"127.0.0.1:{self.port}"

    @property
    def is_closed(self) -> bool:
        with self._lock:
            return self._is_closed

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                if self._path is None:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    if self._is_closed:
                        connection.close()
                        return
                    self.connections.add(connection)
                threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError, ValueError):
                self._serve(connection)
        finally:
            with self._lock:
                self.connections.discard(connection)

    @staticmethod
    def _read_to_end(connection: socket.socket) -> None:
        while connection.recv(CHUNK_BYTES):
            pass

    def drop_connections(self) -> None:
        """End what is connected, as a restart does; `close` alone would wait for who reads."""
        with self._lock:
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the listener and what is connected, a connection that is just being accepted as well."""
        with self._lock:
            self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Relay(ScriptedServer):
    """Passes chunks to a server and back as `edit` returns them; None ends both connections."""

    def __init__(self, server_address: str, edit: Callable[[bytes, bool], bytes | None]) -> None:
        """`edit` gets each chunk and whether it comes from the client."""
        self.server_address, self._edit = server_address, edit
        super().__init__(self._relay)

    def _relay(self, client: socket.socket) -> None:
        host, _, port = self.server_address.rpartition(":")
        with socket.create_connection((host, int(port))) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            replies = threading.Thread(target=self._pass, args=(server, client, False), daemon=True)
            replies.start()
            self._pass(client, server, is_request=True)
            replies.join()

    def _pass(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if (passed := self._edit(data, is_request)) is None:
                    break
                target.sendall(passed)
        for connection in (source, target):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
