"""What can go wrong, one class per thing a caller can act on, all under `GlasscacheError`."""

from __future__ import annotations

from typing import Any

__all__ = [
    "BadKey",
    "BadSetting",
    "BadTrace",
    "ClientClosed",
    "DeadlineExceeded",
    "GlasscacheError",
    "LabError",
    "LoginRefused",
    "NotStored",
    "ProtocolBroken",
    "RequestRefused",
    "ServerUnavailable",
    "UnreadableValue",
    "Unsupported",
    "UnwritableValue",
    "ValueTooLarge",
]


class GlasscacheError(Exception):
    """The base of all errors of this package."""

    unanswered: tuple[Any, ...] | list[Any] = ()
    """Keys of a bulk read without a reply."""

    arrived: dict[Any, Any]
    """Values of a bulk read that did arrive."""

    def __init__(self, message: str = "") -> None:
        """Keep the sentence; there is nothing else to know."""
        super().__init__(message)
        self.arrived = {}


class _ServerError(GlasscacheError):
    """An error at one server."""

    def __init__(
        self, message: str = "", *, server: str = "", phase: str = "", retry_is_safe: bool = False
    ) -> None:
        super().__init__(message)
        self.server = server
        """The server, as it was named."""
        self.phase = phase
        """How far the call had come: "wait", "connect", "write" or "read"."""
        self.retry_is_safe = retry_is_safe
        """Whether the call may be made again: it was not sent, or doing it twice is doing it once."""


class ServerUnavailable(_ServerError):
    """The server cannot be reached, or it closed the connection."""


class DeadlineExceeded(_ServerError, TimeoutError):
    """The call's deadline passed; its connection is closed: a late reply cannot reach another call."""


class ProtocolBroken(_ServerError):
    """The reply did not fit the request; the connection is closed."""


class RequestRefused(_ServerError):
    """The server refused; the message quotes it."""

    def __init__(
        self,
        message: str = "",
        *,
        server: str = "",
        phase: str = "",
        retry_is_safe: bool = False,
        blame: str = "",
    ) -> None:
        """Store which side the server blames."""
        super().__init__(message, server=server, phase=phase, retry_is_safe=retry_is_safe)
        self.blame = blame
        """"client" (CLIENT_ERROR), "server" (SERVER_ERROR) or "command" (ERROR, an unknown one)."""


class LoginRefused(_ServerError):
    """The server did not accept the user and the password."""


class NotStored(_ServerError):
    """A write in a batch was not done, since its condition did not hold."""


class Unsupported(_ServerError):
    """The server, or the proxy before it, has no command for this."""


class ValueTooLarge(GlasscacheError, ValueError):
    """The value has more bytes than the server takes; an older value under the key is gone too."""

    def __init__(
        self, message: str = "", *, key: str = "", value_bytes: int = 0, limit: int | None = None
    ) -> None:
        """Keep which key, how many bytes, and the limit if it is known here."""
        super().__init__(message)
        self.key = key
        self.value_bytes = value_bytes
        self.limit = limit


class BadKey(GlasscacheError, ValueError):
    """The key is empty, too long, or has a space or control character."""

    def __init__(self, message: str = "", *, key: str = "") -> None:
        """Keep the key, cut to what can be shown."""
        super().__init__(message)
        self.key = key


class UnreadableValue(GlasscacheError, ValueError):
    """The item's flags or bytes are not of this client's dialect."""

    def __init__(self, message: str = "", *, flags: int = 0) -> None:
        """Store the flags, which show what client may have written the value."""
        super().__init__(message)
        self.flags = flags


class UnwritableValue(GlasscacheError, TypeError):
    """The codec has no form for a value of this type."""


class BadSetting(GlasscacheError, ValueError):
    """A setting, an amount to add, or an argument of the lab makes no sense."""


class BadTrace(GlasscacheError, ValueError):
    """A trace, a request log or a latency table cannot be read."""

    def __init__(
        self,
        message: str = "",
        *,
        file: str = "",
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        """Keep where the fault is, as far as it is known."""
        super().__init__(message)
        self.file = file
        self.row = row
        """Counted from 1, the header of a CSV file not among them; None when the fault is the file's."""
        self.column = column


class LabError(GlasscacheError):
    """A command of the lab failed (`glasscache.lab`)."""

    def __init__(
        self, message: str = "", *, kind: str = "", exit_code: int = 0, result: object = None
    ) -> None:
        """Keep the kind of the failure and what was found before it."""
        super().__init__(message)
        self.kind = kind
        """"usage", "unreachable", "bad-data", "finding", "interrupted", or empty where there is no JSON."""
        self.exit_code = exit_code
        self.result = result
        """What the command had found by then; None if nothing."""


class ClientClosed(GlasscacheError):
    """The client was closed."""


class StaleConnection(GlasscacheError):
    """A connection was closed while idle: the asyncio client sends again. Never seen by callers."""

    recorded_read: Any = None
    """The record of the read that is sent again, if it is recorded."""


MISSABLE = (
    ServerUnavailable,
    DeadlineExceeded,
    ProtocolBroken,
    RequestRefused,
    LoginRefused,
    UnreadableValue,
    ValueTooLarge,
)
"""The errors that `on_error="miss"` turns into counted misses."""


def is_counted_as_miss(error: BaseException) -> bool:
    """Return whether `on_error="miss"` turns an error into a counted miss."""
    return isinstance(error, MISSABLE)
