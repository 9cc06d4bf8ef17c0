"""The calls about the server itself, and commands sent as they are."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final

import glasscache
from glasscache.compat._flagged import all_or_raise
from glasscache.compat.pymemcache.client._base_client import ClientBase, Key, checked_integer
from glasscache.compat.pymemcache.exceptions import (
    MemcacheClientError,
    MemcacheServerError,
    MemcacheUnknownCommandError,
    MemcacheUnknownError,
    translate_errors,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Admin(ClientBase):
    """`stats`, `version`, `flush_all`, `raw_command` and their kin."""

    @translate_errors
    def stats(self, *args: Key) -> dict[bytes, Any]:
        """Return the server's counters, numbers as numbers."""
        argument_line = " ".join(
            arg.decode() if isinstance(arg, bytes) else str(arg) for arg in args
        )
        if argument_line.startswith("cachedump"):
            return self._cachedump_items(argument_line)
        counters: dict[bytes, Any] = {}
        for server_counters in all_or_raise(self._client.server_stats(argument_line)).values():
            for name, value in server_counters.items():
                counters[_to_bytes(name)] = _typed_counter(_to_bytes(name), value)
        return counters

    def _cachedump_items(self, argument_line: str) -> dict[bytes, Any]:
        """Return the rows of `stats cachedump`, which are `ITEM key [bytes; time]`."""
        rows = self.raw_command(f"stats {argument_line}", b"END\r\n").splitlines()
        pairs = (row.removeprefix(b"ITEM ").partition(b" ") for row in rows)
        return {key: item_info for key, _, item_info in pairs}

    @translate_errors
    def flush_all(self, delay: int = 0, noreply: bool | None = None) -> bool:
        """Remove everything, after `delay` seconds; whether the server replied OK; True with noreply."""
        reads_reply = not self._uses_noreply(noreply)
        try:
            all_or_raise(self._client.flush(delay))
        except glasscache.ProtocolBroken:
            return not reads_reply  # a reply that is not OK, as pymemcache reports it
        except glasscache.GlasscacheError:
            if reads_reply:
                raise
        return True

    def version(self) -> bytes:
        """Return the server's version."""
        reply_name, _, version = self.raw_command(b"version").partition(b" ")
        if reply_name != b"VERSION":
            raise MemcacheUnknownError(f"Received unexpected response: {reply_name!r}")
        return version

    def cache_memlimit(self, memlimit: int) -> bool:
        """Change the server's memory limit, in megabytes."""
        self.raw_command(b"cache_memlimit %d" % checked_integer(memlimit, "memlimit"))
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
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(self._timeout)
            connection.connect(self.server)
        else:
            connection = socket.create_connection(self.server, self._timeout)
        with connection:
            connection.sendall(command + b"\r\n")
            reply = b""
            while end not in reply:
                chunk = connection.recv(65536)
                if not chunk:
                    raise ConnectionError(f"{self.server}: closed the connection")
                reply += chunk
                _raise_error_reply(reply)
        return reply.partition(end)[0]


def _to_bytes(text: Key) -> bytes:
    return text.encode() if isinstance(text, str) else text


_COUNTER_PARSERS: Final[dict[bytes, Callable[[bytes], Any]]] = {
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


def _typed_counter(name: bytes, value: Key) -> Any:
    counter_bytes = _to_bytes(value)
    with contextlib.suppress(ValueError):
        return _COUNTER_PARSERS.get(name, int)(counter_bytes)
    return counter_bytes


def _raise_error_reply(reply: bytes) -> None:
    if not reply.endswith(b"\r\n"):
        return
    if reply.startswith(b"ERROR"):
        raise MemcacheUnknownCommandError(reply.decode(errors="replace").strip())
    if reply.startswith(b"CLIENT_ERROR"):
        raise MemcacheClientError(reply.decode(errors="replace").strip())
    if reply.startswith(b"SERVER_ERROR"):
        raise MemcacheServerError(reply.decode(errors="replace").strip())
