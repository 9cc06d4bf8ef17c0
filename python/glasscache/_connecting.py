"""Connecting to a name with several addresses: each gets its share of the time."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["connect"]


async def connect(
    protocol_factory: Callable[[], Any],
    host: str,
    port: int,
    limit_s: float,
    first_address: str | None,
    tls_arguments: dict[str, Any],
) -> tuple[asyncio.BaseTransport, str]:
    """Connect to the first address of a name that accepts; return the transport and the address.

    An address that fails is followed by the next at once, one that is silent after its share of `limit_s`,
    in seconds. `first_address`, the address that accepted last, is tried first. The caller bounds how long
    the last one may be silent; where it fails its OSError is raised. `tls_arguments` are
    those of asyncio; a handshake is part of connecting.
    """
    loop = asyncio.get_running_loop()
    ends_at = time.monotonic() + limit_s
    addresses = await _resolve_addresses(loop, host, port)
    if first_address in addresses:
        addresses.remove(first_address)
        addresses.insert(0, first_address)
    for addresses_left in range(len(addresses), 1, -1):
        address = addresses[-addresses_left]
        try:
            async with asyncio.timeout((ends_at - time.monotonic()) / addresses_left):
                transport, _ = await loop.create_connection(
                    protocol_factory, address, port, **tls_arguments
                )
        except OSError:  # and TimeoutError, which is one
            continue
        return transport, address
    transport, _ = await loop.create_connection(
        protocol_factory, addresses[-1], port, **tls_arguments
    )
    return transport, addresses[-1]


async def _resolve_addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """Return the addresses of a host as text, without a resolver if it is an address itself."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [host]
    address_infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    address_texts = [_address_text(socket_address) for *_, socket_address in address_infos]
    return list(dict.fromkeys(address_texts)) or [host]


def _address_text(socket_address: tuple[Any, ...]) -> str:
    """Return a socket address without its port; a link-local one of IPv6 names its interface."""
    host = str(socket_address[0])
    is_scoped = len(socket_address) == 4 and socket_address[3]  # noqa: PLR2004 - host, port, flow, scope
    return f"{host}%{socket_address[3]}" if is_scoped else host
