"""The settings of a client, in one table: what each is, its default, its sentence, and what it needs.

`Client` and `AsyncClient` take their keywords, signatures, documentation and checks from it; so do Django's
OPTIONS, dogpile's arguments, the drop-in modules, `glasscache.contrib` and the reference page. A setting is
added here, and where it takes effect.
"""

# No `from __future__ import annotations`: the rows are read from the annotations.

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypedDict, cast

from glasscache.errors import BadSetting

if TYPE_CHECKING:
    import inspect
    import os
    import ssl
    from collections.abc import Iterable, Mapping
    from typing import Annotated

    from glasscache import values
    from glasscache._near import ChildrenOf
    from glasscache._types import Key, OnError, Password, Servers
    from glasscache.tls import TLS
else:

    class Annotated:
        """In place of that of `typing`, which has Python load its parser for a type given as text."""

        def __init__(self, annotation: Any, row: Any) -> None:
            self.annotation, self.row = annotation, row

        def __class_getitem__(cls, annotation_and_row: Any) -> Any:
            return cls(*annotation_and_row)


__all__ = ["AsyncClientSettings", "ClientSettings", "Setting", "complete_settings", "settings_of"]

DEFAULT_SERVERS: Final = "127.0.0.1:11211"
"""The servers of a client that is not given any."""

_COUNT_MAX: Final = (1 << 63) - 1
"""The largest number of the native client."""


_KEEPALIVE_MAX: Final = 32_767
"""The longest interval of TCP keep-alive in Linux, in seconds."""


class Setting(NamedTuple):
    """A setting: its row in the table."""

    default: Any
    sentence: str
    """What it is, as the documentation has it."""
    kind: str = ""
    """What a value must be, a key of `KINDS`; "" if it is checked where it is used."""
    choices: tuple[str, ...] = ()
    """The texts that it may be, if these are all."""
    needs: str = ""
    """The setting without which it has no effect."""
    since: str = "0.1.0"


# fmt: off
class _CommonSettings(TypedDict, total=False):
    timeout: Annotated[float, Setting(
        0.25,
        "seconds that a call may take, connecting and a retry included; 250 ms is 0.25",
        "seconds",
    )]
    placement: Annotated[str, Setting(
        "ketama",
        'which server a key belongs to: "ketama" (as libmemcached), "modula", "rendezvous" (as '
        'pymemcache), "crc", "jump" and more',
        "text",
    )]
    namespace: Annotated["Key", Setting(
        b"",
        "the prefix of each key on the wire",
    )]
    codec: Annotated["values.Codec | str | None", Setting(
        None,
        'a `Codec`, or "json", "msgpack", "pickle" for the form of dicts and lists',
    )]
    dialect: Annotated[str | None, Setting(
        None,
        'the client whose form of values is used, such as "pymemcache"; see `Codec`',
    )]
    on_error: Annotated["OnError", Setting(
        "raise",
        '"raise", or "miss" to make a failed read a miss and a failed write False; each such miss is '
        "counted in `stats()`. A function is called with each error and returns whether it is such a "
        "miss",
    )]
    keys: Annotated[Literal["refuse", "base64"], Setting(
        "refuse",
        '"refuse" keys with spaces or control characters, or send them as "base64"',
        choices=("refuse", "base64"),
    )]
    value_bytes_max: Annotated[int, Setting(
        64 << 20,
        "longer values are neither sent nor received",
        "count",
    )]
    protocol: Annotated[Literal["auto", "binary"], Setting(
        "auto",
        '"auto" is meta and text, as the first connection finds the server; "binary" is for servers '
        "that understand nothing else, such as MemCachier's",
        choices=("auto", "binary"),
    )]
    user: Annotated["Key | None", Setting(
        None,
        "the user as whom each new connection logs in (memcached's `-Y`; in binary by SASL), if the "
        "servers require it",
        needs="password",
    )]
    password: Annotated["Password | None", Setting(
        None,
        "its password, or a function without arguments that returns it for each new connection",
        needs="user",
    )]
    tls: Annotated["TLS | ssl.SSLContext | bool | None", Setting(
        None,
        "True to encrypt every connection and to verify the servers' certificates by the system's "
        "authorities, a `TLS` with files and names of your own, or an `ssl.SSLContext`",
    )]
    keepalive: Annotated[int | None, Setting(
        None,
        "whole seconds that a connection is silent before TCP probes whether its server is still there, and "
        "between two probes (the ninth without a reply ends it); None: as the system has it, often two "
        "hours. Not for unix sockets",
        "keep-alive",
    )]
    costs: Annotated[bool, Setting(
        True,
        "whether the cost of each call is counted",
        "flag",
    )]
    gutter: Annotated["Servers | None", Setting(
        None,
        "servers that take the keys of a failed one, until it is back",
    )]
    gutter_ttl: Annotated[float, Setting(
        10.0,
        "seconds that an item may live there",
        "seconds", needs="gutter",
    )]
    strategy: Annotated["str | os.PathLike[str] | None", Setting(
        None,
        "a file that `glasscache simulate --save` wrote: what is kept in the process and fetched "
        "together, within `request` blocks",
    )]
    near_ttl: Annotated[float | None, Setting(
        10.0,
        "seconds that a value may be served from the process after another process has replaced it; "
        "None: until its TTL. Own writes are seen at once",
        "seconds or None", needs="strategy",
    )]
    coherent: Annotated[bool, Setting(
        False,
        "follow the changes of other clients by watching the servers, in a thread for each: with a "
        "glasscache server a value is served no longer than 50 ms after a change, and with a "
        "memcached (1.6.20) as soon as it reports a store or a delete. What a server does not report "
        "is bounded by `near_ttl`, and logged once",
        "flag", needs="strategy",
    )]
    near_never: Annotated["tuple[str, ...] | list[str]", Setting(
        (),
        "prefixes of keys that the process neither keeps nor fetches ahead of need: what the application "
        "reads, changes and writes back. Sessions need not be named, nor keys that are written by `add`, "
        "`cas`, `incr` or `append` or read by `gets`",
        "prefixes", needs="strategy",
    )]
    near_allow: Annotated["tuple[str, ...] | list[str]", Setting(
        (),
        "prefixes of keys that are kept although they are such keys, as where a counter that is a few "
        "seconds old is good enough; a longer prefix in `near_never` comes first",
        "prefixes", needs="strategy",
    )]
    children_of: Annotated["ChildrenOf | None", Setting(
        None,
        "a function from a key to the keys of its children, in place of the file's",
        needs="strategy",
    )]
    share: Annotated[float | None, Setting(
        None,
        "the share of the requests that run the strategy, from 0 to 1; the others are the control "
        "group. The strategy disables itself if its requests are worse than those",
        "share", needs="strategy",
    )]
    share_by: Annotated[Literal["request", "process"], Setting(
        "request",
        '"request" divides the requests of each process, "process" the processes',
        choices=("request", "process"), needs="strategy",
    )]
    near_check: Annotated[float, Setting(
        0.01,
        "with `share`, how many of the reads that the process serves itself are also read from the "
        "servers, from 0 (none) to 1 (all): a value that had been replaced longer ago than `near_ttl`, "
        "or 50 ms with `coherent`, disables the strategy",
        "fraction", needs="share",
    )]


class AsyncClientSettings(_CommonSettings, total=False):
    """The keywords of `AsyncClient`."""


class ClientSettings(_CommonSettings, total=False):
    """The keywords of `Client`."""

    connections_max: Annotated[int, Setting(
        32,
        "most connections to one server; a call beyond waits for one",
        "count",
    )]
# fmt: on


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Kind(NamedTuple):
    """What a value must be."""

    includes: Callable[[Any], bool]
    expected: str
    """What is written instead of a value that is not of it."""
    schema: dict[str, Any]
    """It in JSON Schema."""


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_keep_alive(value: Any) -> bool:
    return value is None or (_is_whole(value) and 1 <= value <= _KEEPALIVE_MAX)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_prefixes(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(prefix, str) and prefix for prefix in cast("list[Any]", value))


def _is_fraction(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


KINDS: Final = {
    "seconds": Kind(_is_number, "a number of seconds", {"type": "number", "exclusiveMinimum": 0}),
    "seconds or None": Kind(
        _is_number_or_none,
        "a number of seconds, or None",
        {"type": ["number", "null"], "exclusiveMinimum": 0},
    ),
    "fraction": Kind(
        _is_fraction,
        "a number from 0 to 1",
        {"type": "number", "minimum": 0, "maximum": 1},
    ),
    "share": Kind(
        _is_number_or_none,
        "a number from 0 to 1",
        {"type": ["number", "null"], "minimum": 0, "maximum": 1},
    ),
    "count": Kind(_is_whole, "a whole number", {"type": "integer", "minimum": 1}),
    "keep-alive": Kind(
        _is_keep_alive,
        f"a whole number of seconds from 1 to {_KEEPALIVE_MAX}, or None",
        {"type": ["integer", "null"], "minimum": 1, "maximum": _KEEPALIVE_MAX},
    ),
    "flag": Kind(_is_flag, "True or False", {"type": "boolean"}),
    "prefixes": Kind(
        _are_prefixes,
        'a tuple of the texts with which keys begin, as ("cart:",)',
        {"type": "array", "items": {"type": "string", "minLength": 1}},
    ),
    "text": Kind(_is_text, "a text", {"type": "string"}),
}


class Spelling(NamedTuple):
    """How a front end writes a setting, in its errors."""

    name: str
    given: str

    def of_name(self, name: str) -> str:
        """Return the setting as the front end's users write it."""
        return self.name.format(name=name)

    def of_given(self, name: str, value: Any) -> str:
        """Return the setting with what was given for it."""
        return self.given.format(name=name, value=repr(value))


FOREIGN_NAMES: Final = {
    **dict.fromkeys(
        ("server", "url", "urls", "host", "hosts", "location"), "servers, the first argument"
    ),
    **dict.fromkeys(
        ("connect_timeout", "socket_timeout", "receive_timeout", "send_timeout"), "timeout="
    ),
    "ignore_exc": 'on_error="miss"',
    **dict.fromkeys(("key_prefix", "prefix"), "namespace="),
    **dict.fromkeys(("serde", "serializer", "deserializer"), "codec="),
    **dict.fromkeys(("max_pool_size", "pool_size"), "connections_max="),
    "username": "user=",
    **dict.fromkeys(("tls_context", "ssl_context", "ssl"), "tls="),
    "binary": 'protocol="binary"',
    **dict.fromkeys(("socket_keepalive", "tcp_keepalive"), "keepalive="),
    "hasher": "placement=",
    "behaviors": "placement=, timeout= and namespace=",
}
"""Settings of other clients, and what is written for them here."""

KEYWORD: Final = Spelling("{name}=", "{name}={value}")
"""A keyword in Python."""


def settings_of(settings_type: Any) -> "dict[str, Setting]":
    """Return the rows of `ClientSettings` or `AsyncClientSettings` by name, in the order of their table."""
    return {name: annotated.row for name, annotated in settings_type.__annotations__.items()}


CLIENT_SETTINGS: Final = settings_of(ClientSettings)
ASYNC_CLIENT_SETTINGS: Final = settings_of(AsyncClientSettings)


def complete_settings(
    client_name: str, rows: "Mapping[str, Setting]", given: "Mapping[str, Any]"
) -> "dict[str, Any]":
    """Return all settings of a client: those given, which are checked, and the defaults of the others.

    Raises:
        TypeError: there is no such setting.
        BadSetting: it has not the type of its setting, or no effect without another that is not given.

    """
    check_given(client_name, rows, given)
    return {name: given.get(name, row.default) for name, row in rows.items()}


def check_given(
    client_name: str, rows: "Mapping[str, Setting]", given: "Mapping[str, Any]"
) -> None:
    """Raise for what is no setting of a class, as `complete_settings`."""
    for name in given:
        if name not in rows:
            hint = hint_at(name, rows)
            raise TypeError(f"{client_name}() got an unexpected keyword argument {name!r}{hint}")
    check_settings(rows, given, KEYWORD)


def settings_apart_from(*decided: str) -> "dict[str, Setting]":
    """Return the rows of `Client` without those that a front end decides itself."""
    return {name: row for name, row in CLIENT_SETTINGS.items() if name not in decided}


def hint_at(name: str, rows: "Iterable[str]") -> str:
    """Return a hint at the setting that was meant by an unknown name, or "" if none is like it.

    >>> hint_at("time_out", ["timeout", "tls"])
    ': did you mean timeout=?'
    >>> hint_at("ignore_exc", ["timeout", "on_error"])
    ': write on_error="miss"'
    """
    if name in FOREIGN_NAMES:
        return f": write {FOREIGN_NAMES[name]}"
    import difflib  # noqa: PLC0415 - only for errors

    nearest = difflib.get_close_matches(name, rows, n=1)
    return f": did you mean {nearest[0]}=?" if nearest else ""


def check_settings(
    rows: "Mapping[str, Setting]", given: "Mapping[str, Any]", spelling: Spelling
) -> None:
    """Raise for the first of the given settings that is of another type, or without effect."""
    for name, value in given.items():
        row = rows[name]
        _check_type(name, row, value, spelling)
        is_default = value is row.default or value == row.default
        # Where what it needs is given as None, it is turned off for now: `strategy=os.environ.get(...)`.
        if row.needs and row.needs not in given and not is_default:
            # Not what was given: it may be a password.
            subject = spelling.of_given(name, True) if value is True else spelling.of_name(name)
            raise BadSetting(
                f"{subject} needs {spelling.of_name(row.needs)}: leave it out, or give both"
            )


def _check_type(name: str, row: Setting, value: Any, spelling: Spelling) -> None:
    if row.choices and value not in row.choices:
        choices = " or ".join(f'"{choice}"' for choice in row.choices)
        raise BadSetting(f"{spelling.of_given(name, value)}: write {choices}")
    if not row.kind:
        return
    kind = KINDS[row.kind]
    if not kind.includes(value):
        raise BadSetting(f"{spelling.of_given(name, value)}: write {kind.expected}")
    if row.kind == "count" and not 0 <= value <= _COUNT_MAX:
        raise BadSetting(f"{spelling.of_name(name)} is out of range: write 1 to {_COUNT_MAX}")
    if isinstance(value, int):
        try:
            float(value)
        except OverflowError:
            raise BadSetting(
                f"{spelling.of_name(name)} is out of range: write a smaller number"
            ) from None


def documentation_of(rows: "Mapping[str, Setting]") -> str:
    """Return the lines of a docstring about the settings."""
    servers = (
        'servers: "host:port", ("host", port), "host:port*2" or "host:port:2" with a weight, "[::1]:11211", '
        '"memcached://host:port", "/path/of.sock"; several in one text with commas between, or a list.'
    )
    import textwrap  # noqa: PLC0415 - only for the documentation

    sentences = [servers, *(f"{name}: {row.sentence}." for name, row in rows.items())]
    return "\n".join(
        textwrap.fill(sentence, 108, initial_indent=" " * 8, subsequent_indent=" " * 12)
        for sentence in sentences
    )


def annotation_of(settings_type: Any, name: str) -> Any:
    """Return the type of a setting, as text where a type checker alone imports it."""
    return settings_type.__annotations__[name].annotation


class SettingsDocumentation:
    """The `__doc__` of a client: its docstring, and a sentence for each keyword, written when it is read."""

    def __init__(self, docstring: str | None, settings_type: Any) -> None:
        """Take the docstring, None where Python leaves them out, and the table."""
        self._docstring = docstring
        self._settings_type = settings_type

    def __get__(self, instance: object, owner: type) -> str | None:
        """Return the documentation."""
        if self._docstring is None:
            return None
        arguments = documentation_of(settings_of(self._settings_type))
        return f"{self._docstring}\n    Args:\n{arguments}\n\n    "


class SettingsSignature:
    """The `__signature__` of a client: its keywords by name, with their defaults; not for derived classes."""

    def __init__(self, settings_type: Any) -> None:
        """Take the table."""
        self._settings_type = settings_type
        self._owner: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        """Learn of the class."""
        self._owner = owner

    def __get__(self, instance: object, owner: type) -> "inspect.Signature":
        """Return the signature."""
        import inspect  # noqa: PLC0415 - only programs that look at signatures pay for it

        if owner is not self._owner or instance is not None:
            raise AttributeError("__signature__")
        rows = settings_of(self._settings_type)
        servers = inspect.Parameter(
            "servers",
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=DEFAULT_SERVERS,
            annotation="Servers",
        )
        keywords = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=row.default,
                annotation=annotation_of(self._settings_type, name),
            )
            for name, row in rows.items()
        ]
        return inspect.Signature([servers, *keywords])
