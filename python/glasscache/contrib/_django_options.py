"""The OPTIONS of Django's own memcached backends, each with what becomes of it here.

They are the keywords of pymemcache's `HashClient` and of `pylibmc.Client`, and pylibmc's behaviors.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class RefusedOption(Exception):
    """An option that this client cannot honour: the message names what to write instead."""


@dataclass
class SettingsDraft:
    """A client's settings in the making."""

    client_options: dict[str, Any]
    """Keywords of `Client`."""
    servers_count: int
    placement: str | None = None
    """The placement in the old backend's options, if there is one."""
    compression: dict[str, Any] | None = None
    """How the old backend's serde compresses, if it does."""


_RETRIES_REFUSAL: Final = (
    'a server that failed keeps its keys here, each of them a miss with "on_error": "miss"; leave it '
    'out, and name spare servers by "gutter"'
)


def _accept_without_effect(value: Any, draft: SettingsDraft) -> None:
    """Take an option that changes nothing here: it is always so, or only about how the old client works."""


def _refuse_unless(accepted_value: Any, sentence: str) -> Callable[[Any, SettingsDraft], None]:
    def refuse(value: Any, _: SettingsDraft) -> None:
        if value is not accepted_value and value != accepted_value:
            raise RefusedOption(sentence)

    return refuse


def _translate_timeout(value: Any, draft: SettingsDraft, seconds_per_unit: float = 1.0) -> None:
    """Take a time-out of connecting, sending or receiving: the longest one bounds the whole call."""
    if value is None or not value:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise RefusedOption(f'{value!r} is not a length of time; write "timeout": seconds')
    try:
        seconds = value * seconds_per_unit
    except OverflowError:
        raise RefusedOption('out of range; write "timeout": seconds') from None
    configured_timeout = draft.client_options.get("timeout")
    draft.client_options["timeout"] = max(
        seconds, configured_timeout if isinstance(configured_timeout, int | float) else 0
    )


def _translate_ignore_exc(value: Any, draft: SettingsDraft) -> None:
    on_error = "miss" if value else "raise"
    if draft.client_options.setdefault("on_error", on_error) != on_error:
        raise RefusedOption(f'{value!r} contradicts "on_error"; leave it out')


def _translate_max_pool_size(value: Any, draft: SettingsDraft) -> None:
    if not value:
        return
    if not isinstance(value, int):
        raise RefusedOption(f'{value!r} is not a number; write "connections_max": 32')
    draft.client_options.setdefault("connections_max", value)


def _translate_namespace(value: Any, draft: SettingsDraft) -> None:
    if not value:
        return
    if not isinstance(value, str | bytes):
        raise RefusedOption(f"{value!r} is not str or bytes")
    if draft.servers_count > 1:
        raise RefusedOption(
            "with several servers the old client chooses a key's server without its prefix, which this one "
            'does not; leave it out together with "like": all entries are then new'
        )
    draft.client_options.setdefault("namespace", value)


def _translate_serde(value: Any, draft: SettingsDraft) -> None:
    """Take pymemcache's serdes (or the drop-in module's), which are pickles and compressed pickles."""
    inner_serde = value
    if type(value).__name__ == "CompressedSerde" and _is_from_serde_module(value):
        is_zlib = value._compress is zlib.compress and value._decompress is zlib.decompress  # noqa: SLF001
        min_compress_bytes: int = value._min_compress_len  # noqa: SLF001
        inner_serde = value._serde if is_zlib else None  # noqa: SLF001
        if min_compress_bytes > 0:
            draft.compression = {
                "compress": "zlib",
                "threshold": min_compress_bytes + 1,
                "min_saving": 0,
            }
    if not (type(inner_serde).__name__ == "PickleSerde" and _is_from_serde_module(inner_serde)):
        raise RefusedOption(
            f"{value!r} is a serde of its own; pickle_serde and compressed_serde can be taken over, for "
            'another write "codec": "json", "msgpack" or a Codec and leave "like" out'
        )


def _is_from_serde_module(serde: Any) -> bool:
    return type(serde).__module__ in {"pymemcache.serde", "glasscache.compat.pymemcache.serde"}


def _check_hasher(value: Any, _: SettingsDraft) -> None:
    if value is not None and getattr(value, "__name__", "") != "RendezvousHash":
        raise RefusedOption(
            f'{value!r} is a placement of its own; leave it out and write "placement"'
        )


def _check_socket_module(value: Any, _: SettingsDraft) -> None:
    if getattr(value, "__name__", None) != "socket":
        raise RefusedOption("this client's sockets are its own; leave it out")


def _check_encoding(value: Any, _: SettingsDraft) -> None:
    try:
        is_ascii = "-0123456789".encode(value) == b"-0123456789"
    except (LookupError, TypeError):
        is_ascii = False
    if not is_ascii:
        raise RefusedOption(f"{value!r}: text is UTF-8 and numbers are ASCII; leave it out")


def _translate_to(setting: str) -> Callable[[Any, SettingsDraft], None]:
    """Return what takes an option that is a setting here under another name."""

    def translate(value: Any, draft: SettingsDraft) -> None:
        if value is None:
            return
        if setting in draft.client_options:
            raise RefusedOption(
                f'"{setting}" is given, too, which is the same here: leave one of them out'
            )
        draft.client_options[setting] = value

    return translate


def _translate_username(value: Any, draft: SettingsDraft) -> None:
    _translate_to("user")(value, draft)
    _translate_binary(value is not None, draft)  # where libmemcached has logins


def _translate_binary(value: Any, draft: SettingsDraft) -> None:
    if value:
        draft.client_options.setdefault("protocol", "binary")


PYMEMCACHE_TRANSLATORS: Final[dict[str, Callable[[Any, SettingsDraft], None]]] = {
    "allow_unicode_keys": _accept_without_effect,
    "connect_timeout": _translate_timeout,
    "dead_timeout": _refuse_unless(None, _RETRIES_REFUSAL),
    "default_noreply": _accept_without_effect,
    "deserializer": _accept_without_effect,  # the backend names a serde, which goes before it
    "encoding": _check_encoding,
    "hasher": _check_hasher,
    "ignore_exc": _translate_ignore_exc,
    "key_prefix": _translate_namespace,
    "lock_generator": _accept_without_effect,
    "max_pool_size": _translate_max_pool_size,
    "no_delay": _accept_without_effect,
    "pool_idle_timeout": _accept_without_effect,
    "retry_attempts": _refuse_unless(None, _RETRIES_REFUSAL),
    "retry_timeout": _refuse_unless(None, _RETRIES_REFUSAL),
    "serde": _translate_serde,
    "serializer": _accept_without_effect,  # as deserializer
    "socket_keepalive": _accept_without_effect,
    "socket_module": _check_socket_module,
    "tls_context": _translate_to("tls"),
    "use_pooling": _accept_without_effect,
}

_REFUSE_EJECTION: Final = _refuse_unless(0, _RETRIES_REFUSAL)

PYLIBMC_BEHAVIOR_TRANSLATORS: Final[dict[str, Callable[[Any, SettingsDraft], None]]] = {
    "auto_eject": _REFUSE_EJECTION,
    "buffer_requests": _accept_without_effect,
    "cas": _accept_without_effect,
    "connect_timeout": lambda value, draft: _translate_timeout(value, draft, 1e-3),
    "dead_timeout": _accept_without_effect,  # without auto_eject
    "distribution": _accept_without_effect,  # with those that follow it makes the placement
    "failure_limit": _accept_without_effect,  # without auto_eject
    "hash": _accept_without_effect,
    "ketama": _accept_without_effect,
    "ketama_hash": _accept_without_effect,
    "ketama_weighted": _accept_without_effect,
    "namespace": _translate_namespace,
    "no_block": _accept_without_effect,
    "num_replicas": _refuse_unless(0, "this client stores one copy; leave it out"),
    "pickle_protocol": _accept_without_effect,
    "receive_timeout": lambda value, draft: _translate_timeout(value, draft, 1e-6),
    "remove_failed": _REFUSE_EJECTION,
    "retry_timeout": _accept_without_effect,  # without auto_eject
    "_hash_with_prefix_key": _refuse_unless(
        0, "this client places keys in its own way; leave it out"
    ),
    "_io_bytes_watermark": _accept_without_effect,
    "_io_key_prefetch": _accept_without_effect,
    "_io_msg_watermark": _accept_without_effect,
    "_noreply": _accept_without_effect,
    "_poll_timeout": _accept_without_effect,
    "_retry_timeout": _accept_without_effect,
    "_socket_recv_size": _accept_without_effect,
    "_socket_send_size": _accept_without_effect,
    "_sort_hosts": _refuse_unless(
        0, "servers keep the order of LOCATION; sort them there and leave it out"
    ),
    "send_timeout": lambda value, draft: _translate_timeout(value, draft, 1e-6),
    "tcp_keepalive": _accept_without_effect,
    "tcp_nodelay": _accept_without_effect,
    "verify_keys": _accept_without_effect,
}


def _translate_behaviors(value: Any, draft: SettingsDraft) -> None:
    if not isinstance(value, dict):
        raise RefusedOption(f"{value!r} is not a dict of pylibmc's behaviors")
    behaviors = cast("dict[str, Any]", value)
    for name, setting in sorted(behaviors.items()):
        if name not in PYLIBMC_BEHAVIOR_TRANSLATORS:
            raise RefusedOption(
                f'"{name}" is not a behavior of pylibmc; there are {", ".join(PYLIBMC_BEHAVIOR_TRANSLATORS)}'
            )
        try:
            PYLIBMC_BEHAVIOR_TRANSLATORS[name](setting, draft)
        except RefusedOption as refusal:
            raise RefusedOption(f'"{name}": {refusal}') from None
    draft.placement = _placement_of(behaviors)


def _placement_of(behaviors: Mapping[str, Any]) -> str:
    """Return the placement that libmemcached's behaviors amount to.

    pylibmc sets them in this order, and each overrides those before it: `ketama_weighted` of 0 is a ring too.
    """
    is_ring, is_weighted = False, False
    if "ketama" in behaviors:
        is_ring = bool(behaviors["ketama"])
    if "ketama_weighted" in behaviors:
        is_ring, is_weighted = True, bool(behaviors["ketama_weighted"])
    distribution = behaviors.get("distribution")
    if distribution is not None:
        is_ring = str(distribution).startswith("consistent")
    hash_name = behaviors.get("hash") or "default"
    ring_and_hash = (is_ring, hash_name)
    if not behaviors.get("ketama_hash"):
        if is_weighted and distribution is None:
            return "ketama"  # whatever the hash: it is md5 now
        placements = {
            (True, "default"): "ketama-oneatatime",
            (False, "default"): "modula",
            (False, "crc"): "crc",
        }
        if not is_weighted and ring_and_hash in placements:
            return placements[ring_and_hash]
    placement_behaviors = {
        name: behaviors[name] for name in _PLACEMENT_BEHAVIORS if name in behaviors
    }
    raise RefusedOption(
        f"no placement for {placement_behaviors}; "
        "there are ketama_weighted, ketama, and hash default or crc with modula"
    )


_PLACEMENT_BEHAVIORS: Final = ("hash", "distribution", "ketama", "ketama_weighted", "ketama_hash")

PYLIBMC_TRANSLATORS: Final[dict[str, Callable[[Any, SettingsDraft], None]]] = {
    "behaviors": _translate_behaviors,
    "binary": _translate_binary,
    "username": _translate_username,
}

TRANSLATORS_BY_LIBRARY: Final = {
    "pymemcache": PYMEMCACHE_TRANSLATORS,
    "pylibmc": PYLIBMC_TRANSLATORS,
}
"""How each option is handled, by the library of the old backend."""
