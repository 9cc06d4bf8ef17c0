"""Groups of keys that are thrown away together, without listing them.

A tag is a number in the cache, its generation; a tagged value lives under a key that holds the
generations of its tags. Invalidating a tag gives it a new random number, so that no old key is
read again and the old values fall out by age. A generation that was evicted gets a new number
as well: a lost tag means misses, never an old value. A tagged read costs one round trip for all its
tags and one for the value.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any, TypeVar

from glasscache._generations import read_generations
from glasscache._steps import carry_out, carry_out_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from glasscache._steps import Steps

T = TypeVar("T")

_TAG_PREFIX = "~tag:"


def tag_key(tag: str) -> str:
    """Return the key of a tag's generation."""
    return _TAG_PREFIX + tag


def _new_generation() -> int:
    """Return a number that no tag had before: 62 random bits."""
    return secrets.randbits(62)


def _generation_keys(tags: Sequence[str]) -> list[str]:
    return [tag_key(tag) for tag in sorted(set(tags))]


def _versioned_key(key: str, generations: Sequence[int]) -> str:
    generations_text = ",".join(map(str, generations))
    return f"{key}~{hashlib.blake2b(generations_text.encode(), digest_size=8).hexdigest()}"


def tagged_key(client: Any, key: str, tags: Sequence[str]) -> Steps[str]:
    """Find the key under which `key` is stored as long as no tag is invalidated (as steps)."""
    generation_keys = _generation_keys(tags)
    generations = yield from read_generations(client, generation_keys, _new_generation)
    return _versioned_key(key, [int(generation) for generation in generations])


class Tagged:
    """Access to values that belong to tags, on a blocking client: `Tagged(client, "user:7", "prices")`."""

    def __init__(self, client: Any, *tags: str) -> None:
        """Bind the tags to a client."""
        self._client, self._tags = client, tags

    def key(self, key: str) -> str:
        """Return the key under which `key` is stored as long as no tag is invalidated."""
        return carry_out(tagged_key(self._client, key, self._tags))

    def get(self, key: str, default: Any = None, **options: Any) -> Any:
        """Return the value under key, or `default` when there is none or one of the tags was invalidated."""
        return self._client.get(self.key(key), default, **options)

    def set(self, key: str, value: Any, *, ttl: float | None = None) -> bool:
        """Store a value that goes when any of the tags is invalidated."""
        return bool(self._client.set(self.key(key), value, ttl=ttl))

    def get_or_set(self, key: str, make: Callable[[], T], **options: Any) -> T:
        """`get_or_set` of the client, under the tags."""
        value: T = self._client.get_or_set(self.key(key), make, **options)
        return value

    def invalidate(self) -> bool:
        """Throw away every value of each of the tags; whether that was done, as of `invalidate_tag`."""
        outcomes = [invalidate_tag(self._client, tag) for tag in self._tags]
        return all(outcomes)


class AsyncTagged:
    """Access to values that belong to tags, on an asyncio client."""

    def __init__(self, client: Any, *tags: str) -> None:
        """Bind the tags to a client."""
        self._client, self._tags = client, tags

    async def key(self, key: str) -> str:
        """Return the key under which `key` is stored as long as no tag is invalidated."""
        return await carry_out_async(tagged_key(self._client, key, self._tags))

    async def get(self, key: str, default: Any = None, **options: Any) -> Any:
        """Return the value under key, or `default` when there is none or one of the tags was invalidated."""
        return await self._client.get(await self.key(key), default, **options)

    async def set(self, key: str, value: Any, *, ttl: float | None = None) -> bool:
        """Store a value that goes when any of the tags is invalidated."""
        return bool(await self._client.set(await self.key(key), value, ttl=ttl))

    async def get_or_set(self, key: str, make: Callable[[], Awaitable[T] | T], **options: Any) -> T:
        """`get_or_set` of the client, under the tags."""
        value: T = await self._client.get_or_set(await self.key(key), make, **options)
        return value

    async def invalidate(self) -> bool:
        """Throw away every value of each of the tags; whether that was done, as of `invalidate_tag`."""
        return all([await invalidate_tag_async(self._client, tag) for tag in self._tags])


def invalidate_tag(client: Any, tag: str) -> bool:
    """Throw away every value of a tag; whether that was done.

    False only with `on_error="miss"`: then the next call that reaches the server does it.
    """
    return bool(client.set(tag_key(tag), _new_generation()))


async def invalidate_tag_async(client: Any, tag: str) -> bool:
    """Throw away every value of a tag, on an asyncio client; the result as of `invalidate_tag`."""
    return bool(await client.set(tag_key(tag), _new_generation()))
