"""The asyncio client: the methods of the synchronous one, awaited.

It has no thread and no runtime: a connection is an `asyncio.Protocol` over the client's
pipeline. A lone request is written at once, and those of a burst together at the end of the
event-loop iteration, so a hundred tasks that each read one key cost little more than one bulk read.
Works with uvloop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from glasscache._aio_calls import Calls
from glasscache._aio_pipeline import AsyncPipeline
from glasscache._caching import AsyncCaching
from glasscache._client_settings import (
    ASYNC_CLIENT_SETTINGS,
    DEFAULT_SERVERS,
    AsyncClientSettings,
    SettingsSignature,
)
from glasscache._local_methods import LocalMethods
from glasscache._native import Manifest, check_parent
from glasscache._near import strategy_of
from glasscache._settings import gutter_settings, native_state, normalise_servers, prepare_settings
from glasscache._suggestions import keys_of, unknown_keywords_error
from glasscache._types import item_of
from glasscache.errors import StaleConnection
from glasscache.tls import asyncio_tls, normalise_tls

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping
    from typing import Never, Self, Unpack

    from glasscache._report import Explanation
    from glasscache._types import Item, K, Key, Keys, KeysOf, Servers, Ttl
    from glasscache.errors import GlasscacheError

__all__ = ["AsyncClient", "AsyncPipeline"]


T = TypeVar("T")


def _with_gutter(client_class: type[Any]) -> Any:
    from glasscache._gutter import AsyncGutter, with_gutter  # noqa: PLC0415 - few programs need it

    return with_gutter(client_class, AsyncGutter)


class AsyncClient(AsyncCaching, LocalMethods, Calls):
    """A client of one or more servers for asyncio; the arguments are those of `Client`.

    `tls` may be an `ssl.SSLContext`, too.

    One connection a server carries the calls of all tasks of a loop; each loop has its own. A task
    that is cancelled leaves the others alone: its reply is read and dropped.
    """

    __signature__ = SettingsSignature(AsyncClientSettings)

    def __new__(  # noqa: D102 - the class documents the arguments
        cls, servers: Servers = DEFAULT_SERVERS, **given: Unpack[AsyncClientSettings]
    ) -> Self:
        settings = prepare_settings(cls, ASYNC_CLIENT_SETTINGS, given)
        native_strategy, scopes = strategy_of(settings)
        addresses = normalise_servers(servers)
        tls = settings["tls"]
        tls_settings = asyncio_tls(tls, addresses)
        watch_tls = normalise_tls(tls) if settings["coherent"] else None
        state = native_state(addresses, watch_tls, native_strategy, settings)
        gutter = settings["gutter"]
        client_class: type[Self] = cls if gutter is None else _with_gutter(cls)
        client = super().__new__(client_class, state)
        client._state = state
        if scopes is not None:
            client._scopes = scopes
        client._init_connections(settings["timeout"], tls_settings)
        client._deadline_block_count = 0
        if gutter is not None:
            gutter_client = AsyncClient(gutter, **gutter_settings(settings, ASYNC_CLIENT_SETTINGS))
            cast("Any", client)._open_gutter(gutter_client, settings)
        return client

    # ---- reads --------------------------------------------------------------------------------

    @overload
    async def get(
        self,
        key: Key,
        default: None = None,
        *,
        deadline: float | None = None,
        parent: Key | None = None,
    ) -> Any: ...

    @overload
    async def get(
        self,
        key: Key,
        default: T,
        *,
        deadline: float | None = None,
        parent: Key | None = None,
    ) -> Any | T: ...

    async def get(
        self,
        key: Key,
        default: Any = None,
        *,
        deadline: float | None = None,
        parent: Key | None = None,
    ) -> Any:
        """Return the value under key, or default on a miss; `parent` as of `Client.get`."""
        if parent is not None:
            check_parent(parent)
        if self._scopes is not None:
            hit = self._near_hit(key)
            if hit is not None:
                return hit[0]
            return (await self._read_near([key], deadline)).get(key, default)
        if self._deadline_block_count:
            deadline = self._effective_deadline(deadline)
        ends_at = None if deadline is None else time.monotonic() + deadline
        future = self._start_get(key, default, deadline)
        if future is not None:
            try:
                value = await future
            except StaleConnection:
                value = await self._connect_and_get(key, default, deadline, future)
        else:
            value = await self._connect_and_get(key, default, deadline, None)
        return (
            await self._join_pieces(key, value, ends_at, default)
            if type(value) is Manifest
            else value
        )

    async def _connect_and_get(
        self,
        key: Key,
        default: Any,
        deadline: float | None,
        stale_future: asyncio.Future[Any] | None,
    ) -> Any:
        start = self._start_get
        return await self._connect_and_start(start, deadline, default, stale_future, key, default)

    async def gets(self, key: Key, *, deadline: float | None = None) -> tuple[Any, int] | None:
        """Return (value, CAS unique) under key, or None on a miss; `cas` takes the unique."""
        return await self._read_item(self._start_gets, key, deadline)

    async def gat(
        self,
        key: Key,
        ttl: Ttl,
        default: Any = None,
        *,
        deadline: float | None = None,
        **keywords: Never,
    ) -> Any:
        """Return the value under key and give it a new ttl in seconds."""
        if keywords:
            raise unknown_keywords_error("gat", keywords)
        ends_at = None if deadline is None else time.monotonic() + deadline
        value = await self._call(self._start_gat, deadline, default, key, ttl, default)
        return (
            await self._join_pieces(key, value, ends_at, default, ttl)
            if type(value) is Manifest
            else value
        )

    async def get_with_meta(self, key: Key, *, deadline: float | None = None) -> Item | None:
        """Return the value under key with its TTL, last access and CAS unique, or None on a miss."""
        return item_of(await self._read_item(self._start_inspect, key, deadline))

    async def get_many(
        self, keys: KeysOf[K], *, deadline: float | None = None, parent: Key | None = None
    ) -> dict[K, Any]:
        """Return the values under keys, as a dict without those that missed.

        All servers are queried at once. If one fails, the error has `unanswered` and `arrived`.
        """
        if parent is not None:
            check_parent(parent)
        if self._scopes is not None:
            return await self._read_near(keys, deadline)
        has_deadline = deadline is not None
        if self._deadline_block_count:
            deadline = self._effective_deadline(deadline)
        bulk = self._start_get_many(keys, False, deadline)
        values = await bulk.wait()
        if values is not None and not bulk.has_manifests:
            return values  # the usual read: neither connections nor pieces are missing
        return await self._read_bulk(bulk, values, has_deadline=has_deadline)

    async def gets_many(
        self, keys: KeysOf[K], *, deadline: float | None = None
    ) -> dict[K, tuple[Any, int]]:
        """Return (value, CAS unique) of each of the keys that has a value.

        All leave in one write a server. If one fails, the error has `unanswered` and `arrived`.
        """
        bulk = self._start_get_many(keys, True, self._effective_deadline(deadline))
        return await self._read_bulk(bulk, None, has_deadline=deadline is not None)

    async def set(
        self,
        key: Key,
        value: Any,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        split: bool = False,
        deadline: float | None = None,
        **keywords: Never,
    ) -> bool:
        """Store value under key for ttl seconds (0: no expiry); True when the server has it.

        With split a value above 512 KiB is stored in pieces, as `Client.set` does.
        """
        if keywords:
            raise unknown_keywords_error("set", keywords)
        if split:
            from glasscache._split import write_async  # noqa: PLC0415 - likewise

            return await write_async(self, key, value, ttl, deadline)
        if self._deadline_block_count:
            deadline = self._effective_deadline(deadline)
        future = self._start_store(key, "set", value, ttl, noreply, None, deadline)
        if future is not None:
            try:
                return bool(await future)
            except StaleConnection:
                pass
        start, arguments = self._start_store, ("set", value, ttl, noreply, None)
        return bool(await self._connect_and_start(start, deadline, False, future, key, *arguments))

    async def add(
        self,
        key: Key,
        value: Any,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **keywords: Never,
    ) -> bool:
        """Store value only if there is none under key; whether it was stored."""
        if keywords:
            raise unknown_keywords_error("add", keywords)
        arguments = ("add", value, ttl, noreply, None)
        return bool(await self._call(self._start_store, deadline, False, key, *arguments))

    async def replace(
        self,
        key: Key,
        value: Any,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **keywords: Never,
    ) -> bool:
        """Store value only if there is one under key; whether it was stored."""
        if keywords:
            raise unknown_keywords_error("replace", keywords)
        arguments = ("replace", value, ttl, noreply, None)
        return bool(await self._call(self._start_store, deadline, False, key, *arguments))

    async def append(
        self, key: Key, value: Key, *, noreply: bool = False, deadline: float | None = None
    ) -> bool:
        """Append str or bytes to the value under key; False if there is none."""
        arguments = ("append", value, None, noreply, None)
        return bool(await self._call(self._start_store, deadline, False, key, *arguments))

    async def prepend(
        self, key: Key, value: Key, *, noreply: bool = False, deadline: float | None = None
    ) -> bool:
        """Prepend str or bytes to the value under key; False if there is none."""
        arguments = ("prepend", value, None, noreply, None)
        return bool(await self._call(self._start_store, deadline, False, key, *arguments))

    async def cas(
        self,
        key: Key,
        value: Any,
        cas: int,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **keywords: Never,
    ) -> bool | None:
        """Store value if the CAS unique still holds: True; False: it changed; None: gone."""
        if keywords:
            raise unknown_keywords_error("cas", keywords)
        arguments = ("cas", value, ttl, noreply, cas)
        return await self._call(self._start_store, deadline, False, key, *arguments)

    async def delete(
        self, key: Key, *, noreply: bool = False, deadline: float | None = None
    ) -> bool:
        """Remove key; whether it was there."""
        return await self._call(self._start_delete, deadline, False, key, noreply)

    async def touch(
        self,
        key: Key,
        ttl: Ttl,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **keywords: Never,
    ) -> bool:
        """Give key a new ttl in seconds; whether it was there."""
        if keywords:
            raise unknown_keywords_error("touch", keywords)
        ends_at = None if deadline is None else time.monotonic() + deadline
        touched = await self._call(self._start_touch, deadline, False, key, ttl, noreply)
        if type(touched) is Manifest:
            from glasscache._split import touch_async  # noqa: PLC0415 - few values are in pieces

            return await touch_async(self, key, ttl, ends_at and ends_at - time.monotonic())
        return bool(touched)

    async def incr(
        self,
        key: Key,
        delta: int = 1,
        *,
        initial: int | None = None,
        ttl: Ttl | None = None,
        noreply: bool = False,
        deadline: float | None = None,
        **keywords: Never,
    ) -> int | None:
        """Add delta to the number under key and return the sum, or None if there is none."""
        if keywords:
            raise unknown_keywords_error("incr", keywords)
        arguments = (delta, False, initial, ttl, noreply)
        return await self._call(self._start_arithmetic, deadline, None, key, *arguments)

    async def decr(
        self,
        key: Key,
        delta: int = 1,
        *,
        initial: int | None = None,
        ttl: Ttl | None = None,
        noreply: bool = False,
        deadline: float | None = None,
        **keywords: Never,
    ) -> int | None:
        """Subtract delta from the number under key, not below 0, and return what is left."""
        if keywords:
            raise unknown_keywords_error("decr", keywords)
        arguments = (delta, True, initial, ttl, noreply)
        return await self._call(self._start_arithmetic, deadline, None, key, *arguments)

    async def set_many(
        self,
        items: Mapping[Any, Any],
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **keywords: Never,
    ) -> dict[Key, GlasscacheError]:
        """Store a mapping's values; return the exception of each key that failed."""
        if keywords:
            raise unknown_keywords_error("set_many", keywords)
        if not hasattr(items, "keys"):
            type_name = type(items).__name__
            raise TypeError(f"set_many takes a mapping of keys to values, not {type_name}")
        if noreply:
            for key in items:
                await self.set(key, items[key], ttl, noreply=True, deadline=deadline)
            return {}
        values_by_key = {key: items[key] for key in items}
        deadline = self._effective_deadline(deadline)
        return await self._run_bulk(self._start_set_many(values_by_key, ttl, deadline))

    async def delete_many(
        self, keys: Keys, *, noreply: bool = False, deadline: float | None = None
    ) -> dict[Key, GlasscacheError]:
        """Remove keys; return the exception of each key that failed."""
        if noreply:
            for key in keys_of(keys):
                await self.delete(key, noreply=True, deadline=deadline)
            return {}
        deadline = self._effective_deadline(deadline)
        return await self._run_bulk(self._start_delete_many(keys, deadline))

    # ---- all servers --------------------------------------------------------------------------

    async def version(self, *, deadline: float | None = None) -> dict[str, Any]:
        """Return every server's version by its name; the exception of one that failed."""
        return await self._call_all_servers("version", "", 0, deadline)

    async def server_stats(
        self, argument: str = "", *, deadline: float | None = None
    ) -> dict[str, Any]:
        """Return every server's own counters by its name."""
        return await self._call_all_servers("server_stats", argument, 0, deadline)

    async def flush(self, delay: int = 0, *, deadline: float | None = None) -> dict[str, Any]:
        """Drop every item of every server, after delay seconds."""
        return await self._call_all_servers("flush", "", delay, deadline)

    async def clear(self, *, deadline: float | None = None) -> dict[str, Any]:
        """Drop every item of the client's namespace, at once; return True or an exception for each server."""
        return await self._call_all_servers("clear", "", 0, deadline)

    def _counters(self) -> dict[str, Any]:
        counters = super()._counters()
        for name, count in self._connection_counts.items():
            counters["servers"][name]["connections"] = count
        return counters

    async def explain(self, key: Key) -> Explanation:
        """Return what reading this key costs, and where, as a table to print; the key is read."""
        from glasscache._report import explain_async  # noqa: PLC0415 - likewise

        return await explain_async(self, key)

    def pipeline(self) -> AsyncPipeline:
        """Return a block whose calls are sent together when it ends."""
        return AsyncPipeline(self)

    def set_servers(self, servers: Servers) -> None:
        """Change the servers for all calls to come; a call in flight ends where it began.

        Connections to servers that stay are kept; those to others are closed when no call waits on
        them, or after the timeout. To be called in the event loop, as `glasscache.discovery.keep_up` does.
        """
        self._use_servers(normalise_servers(servers))

    async def send_gathered(self, *, deadline: float | None = None) -> None:  # noqa: ARG002 - as `Client`
        """Send quiet writes at once, instead of at the end of the loop iteration."""
        for slot in self._names:
            connection = self._connection_of(slot)
            if connection is not None:
                connection.flush()

    async def close(self) -> None:
        """Close the connections: after calls that wait and quiet writes, or after the timeout."""
        await self._close_connections()

    if not TYPE_CHECKING:

        def __enter__(self) -> None:
            """Raise: an asyncio client is closed by awaiting."""
            raise TypeError("AsyncClient is for `async with`; the client for `with` is Client")

        def __exit__(self, *_: object) -> None:
            """Never reached; `with` looks for it first."""

    async def __aenter__(self) -> Self:
        """Return the client, which is closed at the end of the block."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.close()
