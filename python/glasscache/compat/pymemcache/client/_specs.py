"""Keys and servers as pymemcache's callers write them."""

from __future__ import annotations

from typing import Any, Final

from glasscache.compat.pymemcache.exceptions import MemcacheIllegalInputError

KEY_BYTES_MAX: Final = 250
"""What memcached takes, prefix included."""


def check_key_helper(key: Any, allow_unicode_keys: bool, key_prefix: bytes = b"") -> bytes:
    """Return the key's bytes with the prefix before them, or raise for one that cannot be sent."""
    if isinstance(key, str):
        try:
            full_key = key.encode("utf8" if allow_unicode_keys else "ascii")
        except UnicodeEncodeError as error:
            raise MemcacheIllegalInputError(f"Non-ASCII key: {key!r}") from error
    elif isinstance(key, bytes):
        full_key = key
    else:
        raise TypeError(f"a key is str or bytes, not {type(key).__name__}")
    full_key = key_prefix + full_key
    if len(full_key) > KEY_BYTES_MAX:
        raise MemcacheIllegalInputError(f"Key is too long: {full_key!r}")
    if len(full_key.split()) > 1 or (full_key and full_key.split() != [full_key]):
        raise MemcacheIllegalInputError(f"Key contains whitespace: {full_key!r}")
    if b"\0" in full_key:
        raise MemcacheIllegalInputError(f"Key contains null: {full_key!r}")
    return full_key


class KeepaliveOpts:
    """Seconds idle, seconds between probes and probes, as pymemcache's `socket_keepalive` takes them."""

    __slots__ = ("cnt", "idle", "intvl")

    def __init__(self, idle: int = 1, intvl: int = 1, cnt: int = 5) -> None:
        """Refuse what is below 1."""
        if min(idle, intvl, cnt) < 1:
            raise ValueError("idle, intvl and cnt must be greater or equal to 1")
        self.idle, self.intvl, self.cnt = idle, intvl, cnt


def normalize_server_spec(server: Any) -> Any:
    """Return (host, port), or the path of a unix socket, of any way to write a server.

    >>> normalize_server_spec("localhost")
    ('localhost', 11211)
    >>> normalize_server_spec("unix:/run/memcached.sock")
    '/run/memcached.sock'
    """
    spec: Any = server
    if isinstance(server, tuple):
        return spec
    if isinstance(server, list):
        return tuple(spec)
    if not isinstance(server, str):
        raise ValueError(f"Unsupported server specification: {server!r}")  # noqa: TRY004 - as pymemcache
    if server.startswith("unix:"):
        return server[5:]
    if server.startswith("/"):
        return server
    if ":" not in server or server.endswith("]"):
        host, port = server, "11211"
    else:
        host, port = server.rsplit(":", 1)
    return (host.strip("[]") if host.startswith("[") else host, int(port))


def address(server: Any) -> str:
    """Return a server as this package writes it."""
    server = normalize_server_spec(server)
    if isinstance(server, str):
        return server
    host, port = server
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
