"""What a cache's LOCATION and OPTIONS amount to: one decision, for the backend and for `manage.py check`.

OPTIONS may still be those of the backend that the project comes from. Each is translated here, has no effect
because things are always so, or is refused with what to write instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from glasscache import Client, Codec, GlasscacheError, UnwritableValue
from glasscache._client_settings import (
    ASYNC_CLIENT_SETTINGS,
    CLIENT_SETTINGS,
    Setting,
    Spelling,
    check_settings,
    hint_at,
)
from glasscache._settings import normalise_servers
from glasscache.contrib._django_options import TRANSLATORS_BY_LIBRARY, RefusedOption, SettingsDraft
from glasscache.recording import Recorder
from glasscache.values import resolve_codec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OWN_PREFIX: Final = "gc~"
"""Stands before each key of a cache that is like no other backend's, so that entries of an old one and ours
never meet while processes of both run."""

_LEASE_OPTIONS: Final = frozenset({"stale", "lease", "wait", "early", "stale_if_error"})
_LEASE_SETTINGS: Final = {
    option: Setting(None, "", "seconds or None" if option == "wait" else "seconds")
    for option in sorted(_LEASE_OPTIONS)
}
_DJANGO: Final = Spelling('OPTIONS["{name}"]', 'OPTIONS["{name}"] is {value}')
_DEFAULT_PLACEMENTS: Final = {"pymemcache": "rendezvous", "pylibmc": "modula"}


class CacheSettings(NamedTuple):
    """A cache's settings as this client has them, or why it cannot have them."""

    servers: list[str]
    client_options: dict[str, Any]
    """Keywords of `Client`, `on_error` as it was given."""
    lease_options: dict[str, Any]
    """Settings of `get_or_set`."""
    recorder_options: dict[str, Any] | None
    """Keywords of the `Recorder` of all clients, if requests are recorded."""
    has_own_prefix: bool
    """Whether entries are apart from those of the backend that the project comes from."""
    refusals: list[str]
    """An error for each setting that cannot be honoured: what was given and what to write instead."""
    advice: list[str]
    """A warning for each setting that is honoured and may not do what was meant."""


def translate_settings(location: Any, options: Mapping[str, Any] | None) -> CacheSettings:
    """Return what LOCATION and OPTIONS amount to. Nothing connects."""
    remaining_options = dict(options or {})
    refusals: list[str] = []
    like = remaining_options.pop("like", None)
    if like is not None and like not in TRANSLATORS_BY_LIBRARY:
        refusals.append(
            f'OPTIONS["like"] is {like!r}: write "pymemcache" or "pylibmc", or leave it out'
        )
        like = None
    lease_options = {
        option: remaining_options.pop(option)
        for option in sorted(_LEASE_OPTIONS & remaining_options.keys())
    }
    recorder_options = _call_collecting_refusal(
        refusals, lambda: _parse_recorder(remaining_options.pop("recorder", None))
    )
    servers: list[str] = _call_collecting_refusal(refusals, lambda: _parse_location(location)) or []
    draft = SettingsDraft(
        _pop_client_options(remaining_options),
        len(servers),
    )
    foreign_options = sorted(remaining_options)
    for option in foreign_options:
        try:
            _translate_option(option, remaining_options[option], like, draft)
        except RefusedOption as refusal:
            refusals.append(f'OPTIONS["{option}"]: {refusal}')
    _call_collecting_refusal(refusals, lambda: _apply_like(like, draft))
    has_own_prefix = like is None and _is_own_dialect(draft.client_options)
    if has_own_prefix and not refusals:
        draft.client_options["namespace"] = _prefixed_namespace(
            OWN_PREFIX, draft.client_options.get("namespace", "")
        )
    if not refusals:
        _call_collecting_refusal(
            refusals, lambda: _check_by_construction(servers, draft.client_options, lease_options)
        )
    known_old_options = [
        option
        for option in foreign_options
        if any(option in translators for translators in TRANSLATORS_BY_LIBRARY.values())
    ]
    advice = [] if like is not None or not known_old_options else [_like_advice(known_old_options)]
    return CacheSettings(
        servers,
        draft.client_options,
        lease_options,
        recorder_options,
        has_own_prefix,
        refusals,
        advice,
    )


def _pop_client_options(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options that are settings of `Client`; the old backends write None for a default."""
    client_options = {
        option: options.pop(option) for option in sorted(CLIENT_SETTINGS.keys() & options.keys())
    }
    none_means_default = {"timeout", "user", "password"}
    return {
        option: value
        for option, value in client_options.items()
        if value is not None or option not in none_means_default
    }


def _call_collecting_refusal(refusals: list[str], function: Callable[[], Any]) -> Any:
    try:
        return function()
    except OverflowError as error:
        refusals.append(f"a number in OPTIONS is out of range: {error}; write a smaller one")
    except (RefusedOption, GlasscacheError, TypeError, ValueError) as error:
        refusals.append(str(error))


def _parse_location(location: Any) -> list[str]:
    if not location:
        raise RefusedOption('LOCATION names no server: write "host:port" or a list of them')
    servers = re.split("[;,]", location) if isinstance(location, str) else location
    return normalise_servers(servers)


def _parse_recorder(recorder: Any) -> dict[str, Any] | None:
    """Return the keywords of the recorder that a folder, or a dict with one, stands for."""
    if recorder is None:
        return None
    recorder_options = (
        dict(cast("dict[str, Any]", recorder))
        if isinstance(recorder, dict)
        else {"folder": recorder}
    )
    try:
        Recorder(**recorder_options).close()
    except (TypeError, OverflowError, GlasscacheError) as error:
        reason = "a number is out of range" if isinstance(error, OverflowError) else error
        raise RefusedOption(
            f'OPTIONS["recorder"]: {reason}; write a folder, or {{"folder": "requests/", "sample": 0.01}} '
            "with the settings of glasscache.recording.Recorder"
        ) from None
    return recorder_options


def _translate_option(option: str, value: Any, like: str | None, draft: SettingsDraft) -> None:
    translators_by_library = (
        {like: TRANSLATORS_BY_LIBRARY[like]} if like is not None else TRANSLATORS_BY_LIBRARY
    )
    for translators in translators_by_library.values():
        if option in translators:
            return translators[option](value, draft)
    for other_library, translators in TRANSLATORS_BY_LIBRARY.items():
        if option in translators:
            raise RefusedOption(
                f'an option of {other_library}, and "like" is "{like}": leave it out'
            )
    own_options = sorted({"like", "recorder"} | CLIENT_SETTINGS.keys() | _LEASE_OPTIONS)
    hint = hint_at(option, own_options) or f"; there are {', '.join(own_options)}"
    raise RefusedOption(f"not an option{hint}")


def _apply_like(like: str | None, draft: SettingsDraft) -> None:
    """Set what `like` means: placement and dialect of the old backend."""
    client_options = draft.client_options
    if like is None:
        if draft.placement is not None:
            client_options.setdefault("placement", draft.placement)
        _set_codec(client_options, client_options.pop("dialect", None), draft.compression)
        return
    placement = draft.placement or _DEFAULT_PLACEMENTS[like]
    for option, value in (("placement", placement), ("dialect", like)):
        if client_options.get(option, value) != value:
            raise RefusedOption(
                f'OPTIONS["{option}"] together with "like", which means "{value}": leave one of them out'
            )
    client_options["placement"] = placement
    codec = client_options.get("codec", "pickle")
    if codec != "pickle" and not (isinstance(codec, Codec) and codec.dialect == like):
        raise RefusedOption(
            f'OPTIONS["codec"] together with "like": write "pickle" or Codec("{like}", objects="pickle"), '
            "for its values are pickled"
        )
    client_options.pop("dialect", None)
    _set_codec(client_options, like, draft.compression)


def _set_codec(
    client_options: dict[str, Any], dialect: str | None, compression: dict[str, Any] | None
) -> None:
    """Make the codec: pickles, as every backend of Django writes, unless another is configured."""
    codec = client_options.get("codec", "pickle")
    if compression is not None and codec == "pickle" and dialect is not None:
        client_options["codec"] = Codec(dialect, objects="pickle", **compression)
    else:
        client_options["codec"] = resolve_codec(codec, dialect)


def _is_own_dialect(client_options: Mapping[str, Any]) -> bool:
    codec = client_options.get("codec")
    return isinstance(codec, Codec) and codec.dialect == "own" and codec.migrate_from is None


def _prefixed_namespace(prefix: str, namespace: Any) -> Any:
    return prefix.encode() + namespace if isinstance(namespace, bytes) else f"{prefix}{namespace}"


def _check_by_construction(
    servers: list[str], client_options: dict[str, Any], lease_options: dict[str, Any]
) -> None:
    """Make what the first request would make. Nothing connects."""
    from glasscache import AsyncClient  # noqa: PLC0415 - asyncio only when Django is used

    check_settings(_LEASE_SETTINGS, lease_options, _DJANGO)
    check_settings(CLIENT_SETTINGS, client_options, _DJANGO)
    Client(servers, **client_options).close()
    AsyncClient(servers, **without_blocking_options(client_options))
    try:
        if client_options["codec"].objects == "pickle":
            client_options["codec"].encode({1})
    except UnwritableValue:
        raise RefusedOption(
            f'OPTIONS["dialect"]: {client_options["codec"].dialect} has no form for pickles; write '
            '"codec": "json", or leave it out'
        ) from None


def without_blocking_options(client_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the asyncio client has, too."""
    return {
        option: value for option, value in client_options.items() if option in ASYNC_CLIENT_SETTINGS
    }


def _like_advice(old_options: list[str]) -> str:
    option_list = ", ".join(f'"{option}"' for option in old_options)
    return (
        f'OPTIONS has {option_list} of another backend and no "like": entries that it wrote are not found; '
        'write "like": "pymemcache" or "pylibmc" to find them'
    )
