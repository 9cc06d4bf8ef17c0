"""Fragments of pages, which template languages share: keys, and reading all of a page by one request.

Which fragments a page has is learned from its last rendering, so the first rendering in a process reads
them one by one, and a page that changes reads what is new likewise.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["fragment_key", "prefetch", "read_fragment"]

_PAGES_MAX: Final = 1024
"""Pages whose fragments are remembered."""


class _Store(Protocol):
    """A `Client`, or a cache of Django."""

    def get_many(self, keys: Any, /) -> dict[Any, Any]: ...

    def get_or_set(self, key: Any, make: Any, ttl: Any, /) -> Any: ...


class _PageFragments:
    """The fragments that were read ahead for a page, and the keys of those that it used."""

    def __init__(self, prefetched_fragments: dict[str, Any]) -> None:
        self.prefetched_fragments = prefetched_fragments
        self.used_keys = dict[str, None]()


_current_page: contextvars.ContextVar[_PageFragments | None] = contextvars.ContextVar(
    "glasscache_page", default=None
)
_keys_by_page: OrderedDict[str, tuple[str, ...]] = OrderedDict()


def fragment_key(name: str, *vary_on: Any) -> str:
    """Return the key of a fragment; values of different types differ."""
    parts = [f"{type(part).__name__}:{len(str(part))}:{part}" for part in (name, *vary_on)]
    return f"fragment:{hashlib.blake2b(chr(0).join(parts).encode(), digest_size=12).hexdigest()}"


@contextlib.contextmanager
def prefetch(store: _Store, page: str) -> Generator[None]:
    """Read the fragments that a page used the last time by one request; render it inside the block.

    Args:
        store: the client, or Django's cache, that has the fragments.
        page: names the page and what its set of fragments depends on, such as "product" or "product:de".

    """
    keys = _keys_by_page.get(page, ())
    page_fragments = _PageFragments(store.get_many(list(keys)) if keys else {})
    token = _current_page.set(page_fragments)
    try:
        yield
    finally:
        _current_page.reset(token)
        _keys_by_page[page] = tuple(page_fragments.used_keys)
        _keys_by_page.move_to_end(page)
        while len(_keys_by_page) > _PAGES_MAX:
            _keys_by_page.popitem(last=False)


def read_fragment(store: _Store, key: str, ttl: float | None, render: Callable[[], str]) -> str:
    """Return a fragment that was read ahead, is stored, or is rendered and stored now."""
    page_fragments = _current_page.get()
    if page_fragments is not None:
        page_fragments.used_keys[key] = None
        fragment = page_fragments.prefetched_fragments.get(key)
        if isinstance(fragment, str):
            return fragment
    return str(store.get_or_set(key, render, ttl))
