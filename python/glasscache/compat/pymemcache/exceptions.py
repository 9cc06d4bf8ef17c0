"""pymemcache's exceptions, and how this package's become them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import glasscache

C = TypeVar("C", bound=Callable[..., Any])


class MemcacheError(Exception):
    """The base of all."""


class MemcacheClientError(MemcacheError):
    """The server calls the request wrong."""


class MemcacheUnknownCommandError(MemcacheClientError):
    """The server does not know the command."""


class MemcacheIllegalInputError(MemcacheClientError):
    """The key or the value cannot be sent."""


class MemcacheServerError(MemcacheError):
    """The server reports a fault of its own."""


class MemcacheUnknownError(MemcacheError):
    """The reply did not fit."""


class MemcacheUnexpectedCloseError(MemcacheServerError):
    """The server closed the connection."""


def translate_errors(call: C) -> C:
    """Make a client's call raise pymemcache's errors, after the client has seen ours."""

    @functools.wraps(call)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(self, *args, **kwargs)
        except glasscache.GlasscacheError as error:
            self._record_failure(error)
            _raise_translated(error)

    return wrapper  # type: ignore[return-value]


def _raise_translated(error: glasscache.GlasscacheError) -> NoReturn:
    message = str(error)
    match error:
        case glasscache.BadKey():
            raise MemcacheIllegalInputError(message) from error
        case glasscache.ValueTooLarge():
            raise MemcacheServerError(message) from error
        case glasscache.DeadlineExceeded():
            raise TimeoutError(message) from error
        case glasscache.ServerUnavailable() if error.phase == "connect":
            raise ConnectionRefusedError(message) from error
        case glasscache.ServerUnavailable():
            raise MemcacheUnexpectedCloseError(message) from error
        case glasscache.RequestRefused() if error.blame == "client":
            raise MemcacheClientError(message) from error
        case glasscache.RequestRefused() if error.blame == "server":
            raise MemcacheServerError(message) from error
        case glasscache.RequestRefused() | glasscache.Unsupported():
            raise MemcacheUnknownCommandError(message) from error
        case _:
            raise MemcacheUnknownError(message) from error
