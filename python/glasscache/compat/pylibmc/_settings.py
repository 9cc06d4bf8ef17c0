"""Servers and behaviors as pylibmc's programs write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from glasscache.compat.pylibmc._errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping


server_type_tcp: Final = 1
server_type_udp: Final = 2
server_type_unix: Final = 4

hashers: Final = (
    "default",
    "md5",
    "crc",
    "fnv1_64",
    "fnv1a_64",
    "fnv1_32",
    "fnv1a_32",
    "murmur",
    "hsieh",
)
distributions: Final = ("modula", "consistent", "consistent_ketama", "consistent ketama")

BEHAVIORS: Final[dict[str, Any]] = {
    "auto_eject": 0, "buffer_requests": 0, "cas": 0, "connect_timeout": 4000, "dead_timeout": 0,
    "distribution": "modula", "failure_limit": 5, "hash": "default", "ketama": 0, "ketama_hash": 0,
    "ketama_weighted": 0, "no_block": 0, "num_replicas": 0, "pickle_protocol": -1,
    "receive_timeout": 0, "remove_failed": 0, "retry_timeout": 2, "send_timeout": 0,
    "tcp_keepalive": 0, "tcp_nodelay": 1, "verify_keys": 0,
}  # fmt: skip
"""pylibmc's behaviors and their values at the start; `tcp_nodelay` is always on here."""

all_behaviors: Final = tuple(BEHAVIORS)


class BehaviorDict(dict[str, Any]):
    """A client's behaviors; a change goes to the client."""

    def __init__(self, client: Any, behaviors: Mapping[str, Any]) -> None:
        """Hold the behaviors of a client."""
        super().__init__(behaviors)
        self._client = client

    def __setitem__(self, name: str, value: Any) -> None:
        """Set one behavior."""
        super().__setitem__(name, value)
        self._client.set_behaviors({name: value})

    def update(self, behaviors: Mapping[str, Any]) -> None:  # type: ignore[override]
        """Set several behaviors."""
        super().update(behaviors)
        self._client.set_behaviors(dict(behaviors))


def translate_server_spec(
    server: str, port: int = 11211, weight: int = 1
) -> tuple[int, str, int, int]:
    """Return (type, host or path, port, weight) of "host:port:weight", "udp:...", "[v6]:port" or a path.

    >>> translate_server_spec("127.0.0.1:1234:2")
    (1, '127.0.0.1', 1234, 2)
    >>> translate_server_spec("/run/memcached.sock")
    (4, '/run/memcached.sock', 0, 1)
    """
    if server.startswith("/"):
        return server_type_unix, server, 0, weight
    server_type = server_type_udp if server.startswith("udp:") else server_type_tcp
    spec = server.removeprefix("udp:")
    if spec.startswith("["):
        host, closing, port_and_weight = spec[1:].partition("]")
        if not closing:
            raise ValueError(server)
        port_and_weight = port_and_weight.removeprefix(":")
    else:
        host, _, port_and_weight = spec.partition(":")
    port_text, _, weight_text = port_and_weight.partition(":")
    return server_type, host, int(port_text or port), int(weight_text or weight)


def address_of(server: str | tuple[Any, ...]) -> str:
    """Return a server as this package writes it."""
    server_parts: tuple[Any, ...] = (
        server if isinstance(server, tuple) else translate_server_spec(server)
    )
    server_type, host, port, *weights = server_parts
    weight = weights[0] if weights else 1
    if server_type == server_type_udp:
        raise Error(f"{host}: there is no UDP in this client")
    address = (
        host
        if server_type == server_type_unix
        else f"[{host}]:{port}"
        if ":" in host
        else f"{host}:{port}"
    )
    return address if weight == 1 else f"{address}*{weight}"


def placement_of(behaviors: Mapping[str, Any]) -> str:
    """Return the placement that libmemcached's behaviors amount to."""
    if behaviors["ketama_weighted"]:
        return "ketama"
    if behaviors["ketama"] or str(behaviors["distribution"]).startswith("consistent"):
        return "ketama-oneatatime"
    match behaviors["hash"]:
        case "default" | 0:
            return "modula"
        case "crc":
            return "crc"
        case hash_name:
            raise Error(
                f"hash {hash_name!r} with distribution {behaviors['distribution']!r} has no placement here"
            )
