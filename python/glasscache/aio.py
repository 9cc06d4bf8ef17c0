"""The asyncio client: the words of the synchronous one, awaited.

There is no thread and no runtime behind it: a connection is an `asyncio.Protocol` over the client's
pipeline. All requests of one turn of the event loop leave in one write, so a hundred tasks that each
read one key cost little more than one bulk read. Works with uvloop.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from glasscache import values
from glasscache._aio_calls import Calls
from glasscache._aio_connections import close_when_idle
from glasscache._aio_pipeline import AsyncPipeline
from glasscache._foreign import keys_of, unknown_name, unknown_words
from glasscache.client import (
    Item,
    check_settings,
    missable_of,
    normal_namespace,
    normal_servers,
)
from glasscache.errors import (
    GlasscacheError,
    StaleConnection,
)
from glasscache.leases import AsyncLeases

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType
    from typing import Never, Self

    from glasscache._report import Explanation, Report
    from glasscache.client import K, Key, Keys, KeysOf, OnError, Servers, Ttl

__all__ = ["AsyncClient", "AsyncPipeline"]


_MISSING = object()
T = TypeVar("T")


def _with_gutter(kind: type[Any]) -> Any:
    from glasscache._gutter import AsyncGutter, with_gutter  # noqa: PLC0415 - few programs need it

    return with_gutter(kind, AsyncGutter)


class AsyncClient(AsyncLeases, Calls):
    """A client of one or more servers for asyncio; the arguments are those of `Client`.

    One connection a server carries the calls of all tasks of a loop; each loop has its own. A task
    that is cancelled leaves the others alone: its reply is read and given to nobody.
    """

    _has_base64_keys: bool

    def __new__(  # noqa: D102 - the class says what the words mean
        cls,
        servers: Servers = "127.0.0.1:11211",
        *,
        timeout: float = 0.25,
        placement: str = "ketama",
        namespace: Key = b"",
        codec: values.Codec | str | None = None,
        dialect: str | None = None,
        on_error: OnError = "raise",
        keys: Literal["refuse", "base64"] = "refuse",
        value_bytes_max: int = 64 << 20,
        costs: bool = True,
        gutter: Servers | None = None,
        gutter_ttl: float = 10.0,
    ) -> Self:
        codec = values.named(codec, dialect)
        check_settings(keys, timeout)
        missable = missable_of(on_error)
        kind: type[Self] = cls if gutter is None else _with_gutter(cls)
        client = super().__new__(
            kind,
            normal_servers(servers),
            codec,
            timeout=timeout,
            placement=placement,
            namespace=normal_namespace(namespace),
            missable=missable if gutter is None else None,
            value_bytes_max=value_bytes_max,
            base64_keys=keys == "base64",
            costs=costs,
        )
        client._connecting = {}
        client._probes = {}
        client._answered_last = {}
        client._leaving = set()
        client._has_blocks = 0
        client._has_base64_keys = keys == "base64"
        client._timeout = timeout
        if gutter is not None:
            spare = AsyncClient(
                gutter, timeout=timeout, placement=placement, namespace=namespace, codec=codec,
                on_error=on_error, keys=keys, value_bytes_max=value_bytes_max, costs=costs,
            )  # fmt: skip
            cast("Any", client)._open_gutter(spare, gutter_ttl, timeout, missable)
        return client

    # ---- reads --------------------------------------------------------------------------------

    @overload
    async def get(
        self, key: Key, default: None = None, *, deadline: float | None = None
    ) -> Any: ...

    @overload
    async def get(self, key: Key, default: T, *, deadline: float | None = None) -> Any | T: ...

    async def get(self, key: Key, default: Any = None, *, deadline: float | None = None) -> Any:
        """Return the value under key, or default on a miss."""
        if self._has_blocks:
            deadline = self._within_block(deadline)
        future = self._start_get(key, default, deadline)
        if future is not None:
            try:
                return await future
            except StaleConnection:
                pass
        return await self._late(
            key, lambda left: self._start_get(key, default, left), deadline, default
        )

    async def gets(self, key: Key, *, deadline: float | None = None) -> tuple[Any, int] | None:
        """Return (value, CAS unique) under key, or None on a miss; `cas` takes the unique."""
        found: tuple[Any, int] | None = await self._call(
            key, lambda left: self._start_gets(key, left), deadline, None
        )
        return found

    async def _reserve(
        self,
        key: Key,
        token: bytes,
        ttl: float,
        instead_of: int | None = None,
        *,
        deadline: float | None = None,
    ) -> bool | None:
        """Reserve key for a value that is being made, as the blocking client does."""
        form = self._reservation_form(token)
        if form is None:
            return None
        reserved: bool | None = await self._call(
            key, lambda left: self._start_reserve(key, *form, ttl, instead_of, left), deadline, None
        )
        return reserved

    async def _reservation(
        self, key: Key, *, deadline: float | None = None
    ) -> tuple[bytes, int, int | None] | None:
        """Return (token, CAS unique, seconds left) of the reservation under key, or None."""
        found: tuple[bytes, int, int | None] | None = await self._call(
            key, lambda left: self._start_reservation(key, left), deadline, None
        )
        return found

    async def gat(
        self,
        key: Key,
        ttl: Ttl,
        default: Any = None,
        *,
        deadline: float | None = None,
        **words: Never,
    ) -> Any:
        """Return the value under key and give it a new ttl in seconds."""
        if words:
            raise unknown_words("gat", words)
        return await self._call(
            key, lambda left: self._start_gat(key, ttl, default, left), deadline, default
        )

    async def get_with_meta(self, key: Key, *, deadline: float | None = None) -> Item | None:
        """Return the value under key with its TTL, last access and CAS unique, or None on a miss."""
        found = await self._call(key, lambda left: self._start_inspect(key, left), deadline, None)
        if found is None:
            return None
        value, cas, ttl, last_access, was_hit, is_stale, value_bytes = found
        ttl = None if ttl == -1 else ttl
        return Item(value, cas, ttl, last_access, was_hit, is_stale, value_bytes)

    async def get_many(self, keys: KeysOf[K], *, deadline: float | None = None) -> dict[K, Any]:
        """Return the values under keys, as a dict without those that missed.

        All servers are asked at once. If one fails, the error has `unanswered` and `arrived`.
        """
        singly: dict[Any, Any] = {}
        keys = keys_of(keys)
        if self._has_base64_keys:
            encoded = [key for key in keys if self._is_encoded(key)]
            keys = [key for key in keys if not self._is_encoded(key)]
            singly = await self._each(
                encoded, lambda key: self.get(key, _MISSING, deadline=deadline), _MISSING
            )
        shares = self._shares(keys)
        results = await self._bulk(
            shares, lambda place, share, left: self._start_get_many(place, share, left), deadline
        )
        found = singly
        failure: GlasscacheError | None = None
        unanswered: list[Key] = []
        for place, result in results.items():
            if isinstance(result, GlasscacheError):
                failure = failure or result
                unanswered += result.unanswered or shares[place]
                found.update(result.arrived)
            else:
                found.update(result)
        if failure is None:
            return found
        if self._count_miss(failure, len(unanswered)):
            return found
        failure.unanswered, failure.arrived = unanswered, found
        raise failure

    async def gets_many(
        self, keys: KeysOf[K], *, deadline: float | None = None
    ) -> dict[K, tuple[Any, int]]:
        """Return (value, CAS unique) of each of the keys that has a value.

        All leave in one write a server. If one fails, the error has `unanswered` and `arrived`.
        """
        return await self._each(keys_of(keys), lambda key: self.gets(key, deadline=deadline), None)

    async def _each(
        self, keys: list[Any], read: Callable[[Any], Awaitable[Any]], miss: Any
    ) -> dict[Any, Any]:
        """Read keys by a call each."""
        answers = await asyncio.gather(*map(read, keys), return_exceptions=True)
        found: dict[Any, Any] = {}
        failures: dict[Any, BaseException] = {}
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, BaseException):
                failures[key] = answer
            elif answer is not miss:
                found[key] = answer
        for failure in failures.values():
            if isinstance(failure, GlasscacheError):
                failure.unanswered, failure.arrived = list(failures), found
            raise failure
        return found

    async def set(
        self,
        key: Key,
        value: Any,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **words: Never,
    ) -> bool:
        """Store value under key for ttl seconds (0: no expiry); True when the server has it."""
        if words:
            raise unknown_words("set", words)
        if self._has_blocks:
            deadline = self._within_block(deadline)
        future = self._start_store("set", key, value, ttl, noreply, deadline, None)
        if future is not None:
            try:
                return bool(await future)
            except StaleConnection:
                pass
        return bool(await self._store("set", key, value, ttl, noreply, deadline))

    async def add(
        self,
        key: Key,
        value: Any,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **words: Never,
    ) -> bool:
        """Store value only if there is none under key; whether it was stored."""
        if words:
            raise unknown_words("add", words)
        return bool(await self._store("add", key, value, ttl, noreply, deadline))

    async def replace(
        self,
        key: Key,
        value: Any,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **words: Never,
    ) -> bool:
        """Store value only if there is one under key; whether it was stored."""
        if words:
            raise unknown_words("replace", words)
        return bool(await self._store("replace", key, value, ttl, noreply, deadline))

    async def append(
        self, key: Key, value: Key, *, noreply: bool = False, deadline: float | None = None
    ) -> bool:
        """Put str or bytes behind those under key; False if there are none."""
        return bool(await self._store("append", key, value, None, noreply, deadline))

    async def prepend(
        self, key: Key, value: Key, *, noreply: bool = False, deadline: float | None = None
    ) -> bool:
        """Put str or bytes before those under key; False if there are none."""
        return bool(await self._store("prepend", key, value, None, noreply, deadline))

    async def cas(
        self,
        key: Key,
        value: Any,
        cas: int,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **words: Never,
    ) -> bool | None:
        """Store value if the CAS unique still holds: True; False: it changed; None: gone."""
        if words:
            raise unknown_words("cas", words)
        done: bool | None = await self._store("cas", key, value, ttl, noreply, deadline, cas)
        return done

    async def delete(
        self, key: Key, *, noreply: bool = False, deadline: float | None = None
    ) -> bool:
        """Remove key; whether it was there."""
        return bool(
            await self._call(
                key, lambda left: self._start_delete(key, noreply, left), deadline, False
            )
        )

    async def touch(
        self,
        key: Key,
        ttl: Ttl,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **words: Never,
    ) -> bool:
        """Give key a new ttl in seconds; whether it was there."""
        if words:
            raise unknown_words("touch", words)
        return bool(
            await self._call(
                key, lambda left: self._start_touch(key, ttl, noreply, left), deadline, False
            )
        )

    async def incr(
        self,
        key: Key,
        delta: int = 1,
        *,
        initial: int | None = None,
        ttl: Ttl | None = None,
        noreply: bool = False,
        deadline: float | None = None,
        **words: Never,
    ) -> int | None:
        """Add delta to the number under key and return the sum, or None if there is none."""
        if words:
            raise unknown_words("incr", words)
        return await self._arithmetic(key, delta, False, initial, ttl, noreply, deadline)

    async def decr(
        self,
        key: Key,
        delta: int = 1,
        *,
        initial: int | None = None,
        ttl: Ttl | None = None,
        noreply: bool = False,
        deadline: float | None = None,
        **words: Never,
    ) -> int | None:
        """Subtract delta from the number under key, not below 0, and return what is left."""
        if words:
            raise unknown_words("decr", words)
        return await self._arithmetic(key, delta, True, initial, ttl, noreply, deadline)

    async def set_many(
        self,
        items: Mapping[Any, Any],
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **words: Never,
    ) -> dict[Key, GlasscacheError]:
        """Store a mapping's values; return the exception of each key that failed."""
        if words:
            raise unknown_words("set_many", words)
        if not hasattr(items, "keys"):
            kind = type(items).__name__
            raise TypeError(f"set_many takes a mapping of keys to values, not {kind}")
        if noreply:
            for key in items:
                await self.set(key, items[key], ttl, noreply=True, deadline=deadline)
            return {}
        shares = self._shares(items)
        results = await self._bulk(
            shares,
            lambda place, share, left: self._start_set_many(
                place, [(key, items[key]) for key in share], ttl, left
            ),
            deadline,
        )
        failures: dict[Key, GlasscacheError] = {}
        for place, result in results.items():
            if isinstance(result, GlasscacheError):
                failures.update(dict.fromkeys(shares[place], result))
            elif result is not None:
                failures.update(result)
            else:  # a refusal named no key: each is stored again with an answer of its own
                for key in shares[place]:
                    try:
                        await self.set(key, items[key], ttl, deadline=deadline)
                    except GlasscacheError as error:
                        failures[key] = error
        return failures

    async def delete_many(
        self, keys: Keys, *, noreply: bool = False, deadline: float | None = None
    ) -> dict[Key, GlasscacheError]:
        """Remove keys; return the exception of each key that failed."""
        keys = keys_of(keys)
        if noreply:
            for key in keys:
                await self.delete(key, noreply=True, deadline=deadline)
            return {}
        shares = self._shares(keys)
        results = await self._bulk(
            shares, lambda place, share, left: self._start_delete_many(place, share, left), deadline
        )
        failures: dict[Key, GlasscacheError] = {}
        for place, result in results.items():
            if isinstance(result, GlasscacheError):
                failures.update(dict.fromkeys(shares[place], result))
            else:
                failures.update(result)
        return failures

    # ---- all servers --------------------------------------------------------------------------

    async def version(self, *, deadline: float | None = None) -> dict[str, Any]:
        """Return every server's version by its name; an exception in place of a failed one's."""
        return await self._of_all("version", "", 0, deadline)

    async def server_stats(
        self, argument: str = "", *, deadline: float | None = None
    ) -> dict[str, Any]:
        """Return every server's own counters by its name."""
        return await self._of_all("stats", argument, 0, deadline)

    async def flush(self, delay: int = 0, *, deadline: float | None = None) -> dict[str, Any]:
        """Drop every item of every server, after delay seconds."""
        return await self._of_all("flush", "", delay, deadline)

    def stats(self) -> dict[str, Any]:
        """Return this client's counters: what its calls cost and how each server is. No network.

        The rows are those of `Client.stats`. Of a call that shares its write with others, the part
        "network+server" is all the time from the call to its reply, turns of the loop included.
        """
        return self._counters()

    def report(self) -> Report:
        """Return what this client's calls have cost, by kind and size, as a table to print. No network."""
        from glasscache._report import Report  # noqa: PLC0415 - for people, not for programs

        return Report(self.stats())

    async def explain(self, key: Key) -> Explanation:
        """Return what reading this key costs, and where, as a table to print; the key is read."""
        from glasscache._report import explain_async  # noqa: PLC0415 - likewise

        return await explain_async(self, key)

    def explain_value(self, value: Any) -> Explanation:
        """Return what storing and reading this value would cost the process. No network."""
        from glasscache._report import explain_value  # noqa: PLC0415 - likewise

        return explain_value(self, value)

    def encode(self, value: Any) -> tuple[int, bytes]:
        """Return the flags of a value and the bytes that it would take on the wire."""
        return self.codec.encode(value)

    def server_of(self, key: Key) -> str:
        """Return the name of the server that a key belongs to."""
        return self._names[self._place_of(key)]

    def pipeline(self) -> AsyncPipeline:
        """Return a block whose calls are sent together when it ends."""
        return AsyncPipeline(self)

    def set_servers(self, servers: Servers) -> None:
        """Change the servers for all calls to come; a call in flight ends where it began.

        Connections to servers that stay are kept; those to others are closed once they have been
        answered. To be called in the event loop. See `glasscache.discovery.keep_up` for who does.
        """
        for place, connection in self._change_servers(normal_servers(servers)).items():
            self._connecting.pop((place, asyncio.get_running_loop()), None)
            probe = self._probes.pop(place, None)
            if probe is not None:
                probe.cancel()
            self._note_up(place)  # should it come back, its calls find out how it is
            if connection is not None:
                ends = time.monotonic() + self._timeout
                task = asyncio.get_running_loop().create_task(close_when_idle(connection, ends))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def send_gathered(self, *, deadline: float | None = None) -> None:  # noqa: ARG002 - as `Client`
        """Send at once what was written without waiting, which the end of the loop's turn does otherwise."""
        for place in self._names:
            connection = self._connection_of(place)
            if connection is not None:
                connection.flush()

    async def close(self) -> None:
        """Close the connections, after what was sent has been answered or was given its time."""
        loop = asyncio.get_running_loop()
        for task in [*self._probes.values(), *self._connecting.values()]:
            if task.get_loop() is loop:
                task.cancel()
        ends = time.monotonic() + self._timeout
        for place in range(self._places_count):
            connection = self._use_connection(place, None)
            if connection is not None:
                await close_when_idle(connection, ends)
        await asyncio.gather(*self._leaving, return_exceptions=True)
        self._mark_closed()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise for a name that another client has; the error names ours."""
            raise unknown_name(self, name)

        def __enter__(self) -> None:
            """Raise: an asyncio client is closed by awaiting."""
            raise TypeError("AsyncClient is for `async with`; the client for `with` is Client")

        def __exit__(self, *_: object) -> None:
            """Never reached; `with` looks for it first."""

    async def __aenter__(self) -> Self:
        """Return the client, which is closed at the end of the block."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        await self.close()
