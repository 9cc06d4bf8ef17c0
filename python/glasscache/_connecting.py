"""Connecting to a name with several addresses, and the sockets that this opens."""

from __future__ import annotations

import asyncio
import socket
import time
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

__all__ = ["Sockets", "connect"]


class Sockets:
    """Opens the sockets of one event loop, and closes those that are left when it ends.

    A connection that is closed may keep its socket for a while: a TLS session waits for the peer's farewell.
    """

    def __init__(self) -> None:
        self._transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    async def open_unix(
        self, protocol_factory: Callable[[], Any], path: str
    ) -> asyncio.WriteTransport:
        """Connect to a Unix socket."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_unix_connection(protocol_factory, path)
        self._transports.add(transport)
        return transport

    async def open(
        self,
        protocol_factory: Callable[[], Any],
        tls: tuple[ssl.SSLContext, str] | None,
        address: str,
        port: int,
    ) -> asyncio.WriteTransport:
        """Connect to an address, and encrypt by this context for this name; raise OSError if that fails."""
        loop = asyncio.get_running_loop()
        first_factory = protocol_factory if tls is None else asyncio.Protocol
        transport, _ = await loop.create_connection(first_factory, address, port)
        self._transports.add(transport)
        return transport if tls is None else await _encrypt(transport, protocol_factory(), *tls)

    def close(self) -> None:
        """Close what is still open, in the next iterations of the loop."""
        for transport in list(self._transports):
            transport.abort()


async def _encrypt(
    transport: asyncio.Transport, protocol: Any, context: ssl.SSLContext, server_name: str
) -> asyncio.WriteTransport:
    """Shake hands, then hand the connection to its protocol.

    `create_connection` would do it too, and forget the socket if it is cancelled before the first byte.
    """
    loop = asyncio.get_running_loop()
    try:
        encrypted = None
        if not transport.is_closing():
            encrypted = await loop.start_tls(
                transport, protocol, context, server_hostname=server_name
            )
        if encrypted is None:
            raise ConnectionResetError("the peer closed the connection before the handshake")  # noqa: TRY301
        protocol.connection_made(encrypted)
    except BaseException:
        transport.abort()
        raise
    return encrypted


async def connect(
    open_socket: Callable[[str, int], Awaitable[asyncio.WriteTransport]],
    host: str,
    port: int,
    limit_s: float,
    first_address: str | None,
) -> tuple[asyncio.WriteTransport, str]:
    """Connect to the first address of a name that accepts; return the transport and the address.

    An address that fails is followed by the next at once, one that is silent after its share of `limit_s`,
    in seconds. `first_address`, the address that accepted last, is tried first. The caller bounds how long
    the last one may be silent; where it fails its OSError is raised. A handshake is part of connecting.
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
                transport = await open_socket(address, port)
        except OSError:  # and TimeoutError, which is one
            continue
        return transport, address
    return await open_socket(addresses[-1], port), addresses[-1]


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
