"""A panel for django-debug-toolbar: the calls of a request through this package, and how long they took.

DEBUG_TOOLBAR_PANELS = [..., "glasscache.contrib.debug_toolbar.GlasscachePanel"]
"""

from __future__ import annotations

import functools
import inspect
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from django.utils.html import format_html, format_html_join

from glasscache.contrib.django import GlassCache

if TYPE_CHECKING:
    from collections.abc import Callable

    # The toolbar's own class has no types that could be held to.
    Panel = object
else:
    from debug_toolbar.panels import Panel

__all__ = ["GlasscachePanel"]

_METHOD_NAMES: Final = (
    "get", "set", "add", "touch", "delete", "incr", "decr", "get_many", "set_many", "delete_many", "has_key",
    "get_or_set", "incr_version", "decr_version", "clear",
)  # fmt: skip
_KEYS_DISPLAYED_MAX: Final = 20
_CALLS_DISPLAYED_MAX: Final = 500
"""Calls of a request that are listed one by one; all are counted."""

_current_calls: ContextVar[list[dict[str, Any]] | None] = ContextVar(
    "glasscache_calls", default=None
)
"""Where the calls of the present request are noted, if they are."""


def _keys_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    key_argument = (
        args[0] if args else kwargs.get("key", kwargs.get("keys", kwargs.get("data", [])))
    )
    return [key_argument] if isinstance(key_argument, str) else [str(key) for key in key_argument]


def _count_hits(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> int | None:
    """Return how many values a read hit; None for other calls."""
    match name:
        case "get":
            default = args[1] if len(args) > 1 else kwargs.get("default")
            return int(result is not default)
        case "get_many":
            return len(result)
        case "has_key":
            return int(bool(result))
        case _:
            return None


def _record_call(
    calls: list[dict[str, Any]], name: str, began_at: float, keys: list[str], hit_count: int | None
) -> None:
    ms = (time.perf_counter() - began_at) * 1000
    calls.append({"name": name, "ms": ms, "keys": keys, "found": hit_count})


def _recording_method(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that notes its calls; calls that it makes itself are part of it."""
    sync_name = name[1:] if inspect.iscoroutinefunction(method) else name

    def materialize_keys(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        # An iterator of keys is read once: by the method, not here.
        if sync_name.endswith("_many") and args and not hasattr(args[0], "__len__"):
            return (list(args[0]), *args[1:])
        del kwargs
        return args

    @functools.wraps(method)
    def sync_wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls = _current_calls.get()
        if calls is None:
            return method(self, *args, **kwargs)
        args, began_at, result = materialize_keys(args, kwargs), time.perf_counter(), None
        token = _current_calls.set(None)
        try:
            result = method(self, *args, **kwargs)
        finally:
            _current_calls.reset(token)
            hit_count = (
                None
                if result is None and sync_name != "get"
                else _count_hits(sync_name, args, kwargs, result)
            )
            _record_call(calls, name, began_at, _keys_of(args, kwargs), hit_count)
        return result

    @functools.wraps(method)
    async def async_wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls = _current_calls.get()
        if calls is None:
            return await method(self, *args, **kwargs)
        args, began_at, result = materialize_keys(args, kwargs), time.perf_counter(), None
        token = _current_calls.set(None)
        try:
            result = await method(self, *args, **kwargs)
        finally:
            _current_calls.reset(token)
            hit_count = (
                None
                if result is None and sync_name != "get"
                else _count_hits(sync_name, args, kwargs, result)
            )
            _record_call(calls, name, began_at, _keys_of(args, kwargs), hit_count)
        return result

    return async_wrapper if inspect.iscoroutinefunction(method) else sync_wrapper


@functools.cache
def _instrument_caches() -> None:
    """Have all caches note their calls; done once, when a panel is first used."""
    for name in _METHOD_NAMES:
        for method_name in (name, f"a{name}"):
            setattr(
                GlassCache,
                method_name,
                _recording_method(method_name, getattr(GlassCache, method_name)),
            )


def _stats_of(panel: Any) -> dict[str, Any]:
    stats: dict[str, Any] = panel.get_stats()
    return stats


class GlasscachePanel(Panel):
    """Calls, keys and time of one request."""

    is_async = True
    title = nav_title = "glasscache"

    @property
    def nav_subtitle(self) -> str:
        """The line in the side bar."""
        stats = _stats_of(self)
        return f"{stats.get('count', 0)} calls, {stats.get('keys', 0)} keys, {stats.get('ms', 0):.2f} ms"

    def enable_instrumentation(self) -> None:
        """Begin to note the calls of this request."""
        _instrument_caches()
        self._recorded_calls: list[dict[str, Any]] = []
        _current_calls.set(self._recorded_calls)

    def disable_instrumentation(self) -> None:
        """Note no more."""
        _current_calls.set(None)

    def generate_stats(self, request: Any, response: Any) -> None:
        """Store the recorded calls as plain values."""
        del request, response
        recorded_calls = getattr(self, "_recorded_calls", [])
        displayed_calls = [
            {**call, "keys": call["keys"][:_KEYS_DISPLAYED_MAX]}
            for call in recorded_calls[:_CALLS_DISPLAYED_MAX]
        ]
        panel: Any = self
        panel.record_stats(
            {
                "count": len(recorded_calls),
                "keys": sum(len(call["keys"]) for call in recorded_calls),
                "ms": sum(call["ms"] for call in recorded_calls),
                "calls": [
                    {**call, "width": len(recorded_call["keys"])}
                    for call, recorded_call in zip(displayed_calls, recorded_calls, strict=False)
                ],
            }
        )

    @property
    def content(self) -> str:
        """The table of calls."""
        stats = _stats_of(self)
        rows = format_html_join(
            "",
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td><code>{}</code></td></tr>",
            (
                (
                    call["name"],
                    f"{call['ms']:.3f}",
                    call["width"],
                    "" if call["found"] is None else call["found"],
                    ", ".join(call["keys"]) + (" ..." if call["width"] > len(call["keys"]) else ""),
                )
                for call in stats.get("calls", [])
            ),
        )
        return format_html(
            "<p>{} calls, {} keys, {} ms</p><table><thead><tr><th>call</th><th>ms</th><th>keys</th>"
            "<th>found</th><th></th></tr></thead><tbody>{}</tbody></table>",
            stats.get("count", 0),
            stats.get("keys", 0),
            f"{stats.get('ms', 0):.2f}",
            rows,
        )
