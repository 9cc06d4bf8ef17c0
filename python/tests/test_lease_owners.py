"""Whatever ends a call of `get_or_set` or a dogpile lock, the next caller does not wait for it."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client, DeadlineExceeded
from glasscache._steps import (
    Acquire,
    Release,
    call,
    carry_out,
    carry_out_async,
    settle_background_tasks,
)
from glasscache.leases import lease_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache import Server
    from glasscache._steps import Steps

AT_ONCE_S = 2.0
"""Far below the leases of these tests, and above what a busy machine takes for a call."""
COLD: dict[str, Any] = {"ttl": 60, "lease": 5}
STALE: dict[str, Any] = {"ttl": 60, "stale": 20, "lease": 30}


class _SlowClient(AsyncClient):
    """A client whose server is a few milliseconds away."""

    async def _call(self, *arguments: Any) -> Any:
        await asyncio.sleep(0.004)
        outcome = await super()._call(*arguments)
        await asyncio.sleep(0.004)
        return outcome


@pytest.mark.parametrize("cancel_count", [1, 4])
@pytest.mark.parametrize("is_stale", [False, True])
async def test_a_cancelled_call_gives_back_what_it_acquired(
    glasscache_client: Client, glasscache_server: Server, is_stale: bool, cancel_count: int
) -> None:
    async def make() -> str:
        await asyncio.sleep(0.01)
        return "made"

    async with _SlowClient(glasscache_server.address, timeout=5) as client:
        for number in range(24):
            key = f"k{number}"
            if is_stale:
                glasscache_client.set(key, "old", ttl=10)
            filling = asyncio.ensure_future(
                client.get_or_set(key, make, **(STALE if is_stale else COLD))
            )
            await asyncio.sleep(number * 0.003)
            for _ in range(cancel_count):
                filling.cancel()
                await asyncio.sleep(0)
            with suppress(asyncio.CancelledError):
                await filling
            await settle_background_tasks()
            assert glasscache_client._reservation(key) is None, number
            assert glasscache_client.get(lease_key(key)) is None, number


def test_a_call_that_is_interrupted_while_it_acquires_gives_back(
    glasscache_client: Client,
) -> None:
    class Interrupted(BaseException):
        """As a signal handler's exception, or gevent.Timeout."""

    class InterruptedClient:
        """A client that is interrupted after the server has done what it asked for."""

        def __init__(self, method: str) -> None:
            self._method = method

        def __getattr__(self, name: str) -> Any:
            def call_and_interrupt(*arguments: Any, **options: Any) -> Any:
                outcome = getattr(glasscache_client, name)(*arguments, **options)
                if name == self._method:
                    self._method = ""
                    raise Interrupted
                return outcome

            return call_and_interrupt

    from glasscache._key_lease import KeyLease

    for method in ("add", "gets"):
        lease = KeyLease(InterruptedClient(method), "lease", 30)
        with pytest.raises(Interrupted):
            carry_out(lease.acquire())
            carry_out(lease.acquire_or_skip())
        assert (glasscache_client.get("lease") is None) == (method == "add")
        glasscache_client.delete("lease")


@pytest.mark.parametrize("deadline_ms", [5, 12, 20, 28, 36, 44, 60])
async def test_a_deadline_of_the_caller_is_none_of_what_it_gives_back(
    glasscache_client: Client, glasscache_server: Server, deadline_ms: int
) -> None:
    async def fail_slowly() -> str:
        await asyncio.sleep(0.03)
        raise ValueError("no database")

    async with _SlowClient(glasscache_server.address, timeout=5) as client:
        await client.get("k")  # connected
        with (
            pytest.raises((ValueError, DeadlineExceeded)),
            client.deadline(deadline_ms / 1000),
        ):
            await client.get_or_set("k", fail_slowly, **COLD)
        await settle_background_tasks()
        assert glasscache_client._reservation("k") is None


def test_a_lease_of_another_is_not_released() -> None:
    class Store(dict[str, bytes]):
        def gets(self, key: str) -> Any:
            return (self[key], 1) if key in self else None

        def cas(self, key: str, value: bytes, cas_unique: int, ttl: int) -> bool:
            del self[key]
            return True

        def add(self, key: str, value: bytes, ttl: int) -> bool:
            return self.setdefault(key, value) is value

    from glasscache._key_lease import KeyLease

    store = Store()
    first, second = KeyLease(store, "k", 1), KeyLease(store, "k", 1)
    assert carry_out(first.acquire())
    assert carry_out(second.acquire_or_skip()) is False
    store.clear()  # its time is over
    assert carry_out(second.acquire())
    carry_out(first.release())
    assert "k" in store
    carry_out(second.release())
    assert "k" not in store


@pytest.mark.parametrize("cancel_after", range(8))
@pytest.mark.parametrize("fails", [False, True])
async def test_steps_that_acquire_are_carried_out_to_their_end(
    cancel_after: int, fails: bool
) -> None:
    events: list[str] = []

    class Resource:
        async def step(self, name: str) -> None:
            await asyncio.sleep(0)
            events.append(name)
            if fails and name == "second":
                raise ValueError(name)

    def acquire() -> Steps[str]:
        yield call(Resource(), "step", "first")
        yield call(Resource(), "step", "second")
        return "acquired"

    def give_back() -> Steps[None]:
        yield call(Resource(), "step", "given back")

    def use() -> Steps[None]:
        assert (yield Acquire(acquire(), give_back)) == "acquired"
        try:
            yield call(Resource(), "step", "used")
        finally:
            yield Release(give_back())

    task = asyncio.ensure_future(carry_out_async(use()))
    for _ in range(cancel_after):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError, ValueError):
        await task
    await settle_background_tasks()
    begun = bool(events)
    assert not begun or events[:2] == ["first", "second"]
    assert not begun or events.count("given back") == 1


def test_a_dialect_without_reservations_fills_at_once_when_the_cache_is_down() -> None:
    client = Client("127.0.0.1:1", on_error="miss", timeout=0.1, dialect="raw")
    began_at = time.monotonic()
    assert client.get_or_set("k", lambda: b"made", ttl=60, lease=30) == b"made"
    assert time.monotonic() - began_at < 5


class TestDogpile:
    """The mutex of a region."""

    @pytest.fixture
    def make_region(self) -> Callable[..., Any]:
        pytest.importorskip("dogpile.cache", reason="dogpile.cache is not installed")
        from dogpile.cache import make_region, register_backend

        register_backend("glasscache", "glasscache.contrib.dogpile", "GlassCacheBackend")

        def make(address: str, **arguments: Any) -> Any:
            return make_region().configure(
                "glasscache", expiration_time=300, arguments={"servers": address, **arguments}
            )

        return make

    def test_a_cache_that_is_down_is_no_lock_of_another(
        self, make_region: Callable[..., Any]
    ) -> None:
        region = make_region("127.0.0.1:1", on_error="miss", timeout=0.1)
        made_values: list[int] = []
        thread = threading.Thread(
            target=lambda: made_values.append(region.get_or_create("k", lambda: 42)), daemon=True
        )
        thread.start()
        thread.join(10)
        assert made_values == [42]

    def test_a_lock_is_waited_for_as_long_as_it_may_be_held(
        self, make_region: Callable[..., Any], glasscache_client: Client, glasscache_server: Server
    ) -> None:
        region = make_region(glasscache_server.address, lock_timeout=1)
        glasscache_client.set("~lock:k", b"of another, who renews it", ttl=60)
        began_at = time.monotonic()
        assert region.get_or_create("k", lambda: 42) == 42
        assert 0.9 < time.monotonic() - began_at < 1 + AT_ONCE_S
        assert glasscache_client.get("~lock:k") is not None

    def test_a_lock_is_released_whatever_the_creator_raises(
        self, make_region: Callable[..., Any], glasscache_client: Client, glasscache_server: Server
    ) -> None:
        region = make_region(glasscache_server.address)

        def stop() -> int:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            region.get_or_create("k", stop)
        assert glasscache_client.get("~lock:k") is None
        mutex = region.backend.get_mutex("k")
        assert mutex.acquire(False)
        assert not region.backend.get_mutex("k").acquire(False)
        assert mutex.locked()
        mutex.release()
        assert not mutex.locked()
