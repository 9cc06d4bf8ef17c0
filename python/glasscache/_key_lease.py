"""A lease that is an item under a key of its own: who adds its token has it, until the item's end at most.

It is removed only by the one whose token it holds, so that a lease that ran out and is another's by now
stays. What is done here is in steps (`glasscache._steps`), for clients that block and clients that are
awaited.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from glasscache._steps import Acquire, Release
from glasscache._steps import package_call as call

if TYPE_CHECKING:
    from glasscache._steps import Steps

__all__ = ["KeyLease"]


class KeyLease:
    """One attempt to have a lease; `lifetime_s` are whole seconds, None for a lease without an end."""

    __slots__ = ("_client", "_key", "_lifetime_s", "_token")

    def __init__(self, client: Any, key: str, lifetime_s: float | None) -> None:
        """Choose a token; nothing is sent yet."""
        self._client, self._key, self._lifetime_s = client, key, lifetime_s
        self._token = os.urandom(8).hex().encode()

    def acquire(self) -> Steps[bool]:
        """Take the lease; whether it was free. A caller that is cancelled meanwhile does not keep it."""
        is_acquired = yield Acquire(self._add(), self._remove)
        return bool(is_acquired)

    def acquire_or_skip(self) -> Steps[bool | None]:
        """Take the lease, as `acquire`; None if the cache is not there, whose errors are misses.

        A client for which a failed write is a False says the same of a lease that another has, but then the
        lease is there to be read.
        """
        for _ in range(2):  # a lease may end between the two requests
            if (yield from self.acquire()):
                return True
            if (yield call(self._client, "gets", self._key)) is not None:
                return False
        return None

    def release(self) -> Steps[None]:
        """Give the lease back, unless it ended; a cache that fails is left to end it."""
        yield Release(self._remove())

    def _add(self) -> Steps[bool]:
        is_added = yield call(self._client, "add", self._key, self._token, ttl=self._lifetime_s)
        return bool(is_added)

    def _remove(self) -> Steps[None]:
        value_and_cas = yield call(self._client, "gets", self._key)
        if value_and_cas is not None and value_and_cas[0] == self._token:
            # Stored with a life that is over: a removal on the condition that the lease is still ours.
            yield call(self._client, "cas", self._key, b"", value_and_cas[1], ttl=-1)
