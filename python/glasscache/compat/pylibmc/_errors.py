"""pylibmc's exceptions, and how this package's become them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import glasscache

C = TypeVar("C", bound=Callable[..., Any])


class Error(Exception):
    """The base of this module's errors."""


class CacheMiss(Error):
    """Raised by a `deserialize` to make a value a miss."""


class Failure(Error):
    """A failure without a more specific class."""


class HostLookupError(Error):
    """A host name has no address."""


class ConnectionError(Error):  # noqa: A001 - pylibmc's name
    """No connection to the server."""


class ProtocolError(Error):
    """The server's reply is not valid in the protocol, or not a reply to the request."""


class ClientError(Error):
    """The server refused the request as invalid."""


class ServerError(Error):
    """The server reports a fault of its own."""


class ServerDown(Error):
    """The server cannot be reached, or did not reply in time."""


class ServerDead(ServerDown):
    """The server is left alone for a while."""


class TooBig(Error):
    """The value has more bytes than the server takes."""


class BadKeyProvided(Error):
    """The key cannot be sent."""


class NotFound(Error):
    """The key has no item."""


class NotStored(Error):
    """The condition of a store did not hold."""


class NoServers(Error):
    """The client has no servers."""


def translate_errors(call: C) -> C:
    """Give this package's errors as pylibmc's."""

    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except glasscache.GlasscacheError as error:
            _raise_translated(error)

    return wrapper  # type: ignore[return-value]


def _raise_translated(error: glasscache.GlasscacheError) -> NoReturn:
    error_classes: dict[type[Exception], type[Exception]] = {
        glasscache.ServerUnavailable: ServerDown,
        glasscache.DeadlineExceeded: ServerDown,
        glasscache.ValueTooLarge: TooBig,
        glasscache.ProtocolBroken: ProtocolError,
        glasscache.BadKey: ValueError,
    }
    error_class = next(
        (
            pylibmc_class
            for glasscache_class, pylibmc_class in error_classes.items()
            if isinstance(error, glasscache_class)
        ),
        None,
    )
    if error_class is None:
        is_client_error = isinstance(error, glasscache.RequestRefused) and error.blame == "client"
        error_class = ClientError if is_client_error else Failure
    raise error_class(str(error)) from error
