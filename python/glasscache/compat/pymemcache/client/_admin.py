"""The calls about the server itself, and commands sent as they are."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final

import glasscache
from glasscache.compat._flagged import each_of
from glasscache.compat.pymemcache.client._core import Core, Key, whole
from glasscache.compat.pymemcache.exceptions import (
    MemcacheClientError,
    MemcacheServerError,
    MemcacheUnknownCommandError,
    MemcacheUnknownError,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Admin(Core):
    """`stats`, `version`, `flush_all`, `raw_command` and their kin."""

    @translated
    def stats(self, *args: Key) -> dict[bytes, Any]:
        """Return the server's counters, numbers as numbers."""
        words = " ".join(arg.decode() if isinstance(arg, bytes) else str(arg) for arg in args)
        if words.startswith("cachedump"):
            return self._items(words)
        counters: dict[bytes, Any] = {}
        for each in each_of(self._client.server_stats(words)).values():
            for name, value in each.items():
                counters[_bytes(name)] = _number(_bytes(name), value)
        return counters

    def _items(self, words: str) -> dict[bytes, Any]:
        """Return the rows of `stats cachedump`, which are `ITEM key [bytes; time]`."""
        rows = self.raw_command(f"stats {words}", b"END\r\n").splitlines()
        pairs = (row.removeprefix(b"ITEM ").partition(b" ") for row in rows)
        return {key: what for key, _, what in pairs}

    @translated
    def flush_all(self, delay: int = 0, noreply: bool | None = None) -> bool:
        """Remove everything, after `delay` seconds; whether the server replied OK. With noreply True."""
        reads_reply = not self._is_quiet(noreply)
        try:
            each_of(self._client.flush(delay))
        except glasscache.ProtocolBroken:
            return not reads_reply  # an answer that is not OK, as pymemcache tells it
        except glasscache.GlasscacheError:
            if reads_reply:
                raise
        return True

    def version(self) -> bytes:
        """Return the server's version."""
        kind, _, version = self.raw_command(b"version").partition(b" ")
        if kind != b"VERSION":
            raise MemcacheUnknownError(f"Received unexpected response: {kind!r}")
        return version

    def cache_memlimit(self, memlimit: int) -> bool:
        """Change the server's memory limit, in megabytes."""
        self.raw_command(b"cache_memlimit %d" % whole(memlimit, "memlimit"))
        return True

    def shutdown(self, graceful: bool = False) -> None:
        """Stop a server that allows it."""
        with contextlib.suppress(ConnectionError):
            self.raw_command(b"shutdown graceful" if graceful else b"shutdown")

    def raw_command(self, command: Key, end_tokens: Key = b"\r\n") -> bytes:
        """Send a command by a connection of its own; return its reply without the end token."""
        command, end = (
            part.encode() if isinstance(part, str) else part for part in (command, end_tokens)
        )
        if isinstance(self.server, str):
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(self._timeout)
            peer.connect(self.server)
        else:
            peer = socket.create_connection(self.server, self._timeout)
        with peer:
            peer.sendall(command + b"\r\n")
            reply = b""
            while end not in reply:
                piece = peer.recv(65536)
                if not piece:
                    raise ConnectionError(f"{self.server}: closed the connection")
                reply += piece
                _raise_for(reply)
        return reply.partition(end)[0]


def _bytes(text: Key) -> bytes:
    return text.encode() if isinstance(text, str) else text


_NUMBERS: Final[dict[bytes, Callable[[bytes], Any]]] = {
    **dict.fromkeys((b"version", b"inter", b"stat_key_prefix"), bytes),
    **dict.fromkeys((b"rusage_user", b"rusage_system", b"growth_factor"), float),
    **dict.fromkeys(
        (
            b"hash_is_expanding", b"slab_reassign_running", b"detail_enabled", b"cas_enabled",
            b"maxconns_fast", b"slab_reassign", b"slab_automove",
        ),
        lambda text: int(text) != 0,
    ),
    b"umask": lambda text: int(text, 8),
    b"auth_enabled_sasl": lambda text: text == b"yes",
}  # fmt: skip
"""What pymemcache makes of a server's counters; the others are whole numbers where they can be."""


def _number(name: bytes, value: Key) -> Any:
    text = _bytes(value)
    with contextlib.suppress(ValueError):
        return _NUMBERS.get(name, int)(text)
    return text


def _raise_for(reply: bytes) -> None:
    if not reply.endswith(b"\r\n"):
        return
    if reply.startswith(b"ERROR"):
        raise MemcacheUnknownCommandError(reply.decode(errors="replace").strip())
    if reply.startswith(b"CLIENT_ERROR"):
        raise MemcacheClientError(reply.decode(errors="replace").strip())
    if reply.startswith(b"SERVER_ERROR"):
        raise MemcacheServerError(reply.decode(errors="replace").strip())
