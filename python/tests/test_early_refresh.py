"""Early refresh by stored cost: no request waits for a popular value that is about to end."""

from __future__ import annotations

import heapq
import itertools
import math
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from glasscache import AsyncClient, Client, Codec, Server, leases
from glasscache._native import ComputedValue
from glasscache._refresh import GetOrSetOptions
from glasscache._steps import Acquire, Call, CallFunction, Release, Sleep, carry_out
from glasscache._types import Item

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.mark.parametrize(
    "value", ["text", b"bytes", 7, None, 1.5, [1, 2, 3], {"a": {"b"}}, b"x" * 200_000, "y" * 5000]
)
def test_a_value_with_compute_info_comes_back_equal(glasscache_client: Client, value: Any) -> None:
    started_at = time.time()
    for _ in range(2):
        assert glasscache_client.get_or_set("k", lambda: value, 60, early=True) == value
    assert glasscache_client.get("k", "none") == value
    assert glasscache_client.get_many(["k"]) == {"k": value}
    item = glasscache_client.get_with_meta("k")
    assert item is not None
    assert item.compute_info is not None
    made_at, cost_s = item.compute_info
    assert started_at - 0.01 <= made_at <= time.time()
    assert 0 <= cost_s < 10
    glasscache_client.set("k", value)
    item = glasscache_client.get_with_meta("k")
    assert item is not None
    assert item.compute_info is None


def test_a_value_in_pieces_keeps_its_compute_info(glasscache_client: Client) -> None:
    with Client(glasscache_client.server_of("k"), codec=Codec(compress=None), timeout=5) as client:
        value = b"z" * 3_000_000
        compute_calls: list[int] = []

        def compute_value() -> bytes:
            compute_calls.append(1)
            return value

        for _ in range(3):
            assert client.get_or_set("k", compute_value, 60, early=True, split=True) == value
        item = client.get_with_meta("k")
        assert item is not None
        assert item.value == value
        assert item.compute_info is not None
        assert compute_calls == [1]


def test_another_dialect_stores_the_value_alone(glasscache_client: Client) -> None:
    with Client(glasscache_client.server_of("k"), dialect="pymemcache") as client:
        for _ in range(2):
            assert client.get_or_set("k", lambda: "text", 60, early=True) == "text"
        item = client.get_with_meta("k")
        assert item is not None
        assert (item.value, item.compute_info) == ("text", None)


async def test_every_process_refreshes_by_the_cost_that_was_stored(
    glasscache_server: Server,
) -> None:
    async with AsyncClient(glasscache_server.address, timeout=5) as client:
        now = time.time()
        await client.set("k", ComputedValue("old", now - 50, 1e-6), ttl=16)
        assert await client.get_or_set("k", lambda: "new", 60, early=True) == "old"
        await client.set("k", ComputedValue("old", now - 50, 1e5), ttl=16)  # it would take a day
        assert await client.get_or_set("k", lambda: "new", 60, early=True) == "new"
        assert await client.get("k") == "new"

        @client.cached(ttl=60, early=True)
        async def double(number: int) -> int:
            return 2 * number

        assert await double(4) == await double(4) == await double.refresh(4) == 8
        item = await client.get_with_meta(double.cache_key(4))
        assert item is not None
        assert item.compute_info is not None


def test_the_servers_seconds_bound_a_clock_that_is_wrong() -> None:
    options = GetOrSetOptions(ttl=60, early=True)
    item = Item("v", 1, 36, 0, False, False, 1, (1000.0, 0.5))
    assert options.fresh_seconds_left(item, 1030.0) == 30
    assert options.fresh_seconds_left(item, 5000.0) == 28
    assert options.fresh_seconds_left(item, 10.0) == 32
    assert options.fresh_seconds_left(item._replace(compute_info=None), 10.0) == 36
    assert options.fresh_seconds_left(item._replace(ttl=None), 10.0) is None


def test_a_constant_needs_no_stored_cost() -> None:
    options = GetOrSetOptions(ttl=60, early=2)
    assert options.is_due_for_refresh(3, random_fraction=0.1, cost=1e9)
    assert not options.is_due_for_refresh(3, random_fraction=0.9, cost=1e9)
    options_by_cost = GetOrSetOptions(ttl=60, early=True)
    assert options_by_cost.is_due_for_refresh(3, random_fraction=0.1, cost=2)
    assert not options_by_cost.is_due_for_refresh(3, random_fraction=0.9, cost=2)
    assert not options_by_cost.is_due_for_refresh(3, random_fraction=1e-9, cost=0)


class StoredItem(NamedTuple):
    """An item of the simulated store; the value of a reservation is a tuple."""

    value: Any
    unique: int
    expires_at: int


class SimulatedStore:
    """Time that only the simulation moves, and a server that counts whole seconds."""

    has_reservations = True

    def __init__(self) -> None:
        self.now = 1000.25
        self.codec = Codec()
        self.items: dict[str, StoredItem] = {}
        self.uniques = itertools.count(1)
        self.compute_info_by_unique: dict[int, tuple[float, float]] = {}
        self.unstored_count = 0

    def time(self) -> float:
        return self.now

    monotonic = time

    @property
    def _has_reservations(self) -> bool:
        return True

    def _count_unstored(self) -> None:
        self.unstored_count += 1

    def find(self, key: str) -> StoredItem | None:
        stored = self.items.get(key)
        return None if stored is None or stored.expires_at <= int(self.now) else stored

    def put(self, key: str, value: Any, ttl: float) -> bool:
        self.items[key] = StoredItem(value, next(self.uniques), int(self.now) + math.ceil(ttl))
        return True

    def get(self, key: str, default: Any = None) -> Any:
        item = self.get_with_meta(key)
        return default if item is None else item.value

    def get_with_meta(self, key: str) -> Item | None:
        stored = self.find(key)
        if stored is None or isinstance(stored.value, tuple):
            return None
        value, unique, expires_at = stored
        compute_info = None
        if type(value) is ComputedValue:
            compute_info = self.compute_info_by_unique[unique]
            value = value.value
        return Item(value, unique, expires_at - int(self.now), 0, True, False, 1, compute_info)

    def gets(self, key: str) -> tuple[Any, int] | None:
        stored = self.find(key)
        return None if stored is None else (stored.value, stored.unique)

    def add(self, key: str, value: Any, ttl: float) -> bool:
        return self.find(key) is None and self.put(key, value, ttl)

    def cas(self, key: str, value: Any, unique: int, ttl: float) -> bool | None:
        stored = self.find(key)
        if stored is None or stored.unique != unique:
            return None if stored is None else False
        return self.put(key, value, ttl)

    def delete(self, key: str) -> bool:
        return self.items.pop(key, None) is not None

    def _reserve(self, key: str, token: bytes, ttl: float, instead_of: int | None) -> bool:
        return instead_of is None and self.add(key, (token,), ttl)

    def _reservation(self, key: str) -> tuple[bytes, int, int] | None:
        stored = self.find(key)
        if stored is None or not isinstance(stored.value, tuple):
            return None
        seconds_left = 50
        return stored.value[0], stored.unique, seconds_left


class SimulatedRequests:
    """Requests at a rate, each with the steps of a `get_or_set`, on the time of a simulated store."""

    def __init__(self, store: SimulatedStore, cost_s: float) -> None:
        self.store, self.cost_s = store, cost_s
        self.events: list[tuple[float, int, Generator[Any, Any, Any], Any]] = []
        self.event_numbers = itertools.count()
        self.computed_at: list[float] = []
        self.running_count = self.concurrent_computations_max = self.wait_count = 0
        self.value_ages_s: list[float] = []

    def run_at(self, at: float, steps: Generator[Any, Any, Any], outcome: Any = None) -> None:
        heapq.heappush(self.events, (at, next(self.event_numbers), steps, outcome))

    def run(self) -> None:
        store = self.store
        while self.events:
            store.now, _, steps, outcome = heapq.heappop(self.events)
            if outcome == "made":
                self.running_count -= 1
                outcome = store.now
            self.run_to_next_wait(steps, outcome)

    def run_to_next_wait(self, steps: Generator[Any, Any, Any], outcome: Any) -> None:
        store = self.store
        try:
            step = steps.send(outcome)
            while type(step) in {Call, Acquire, Release}:
                if type(step) is not Call:
                    step = steps.send(carry_out(step.steps))
                    continue
                reply = step.begin()
                if (
                    step.name in {"cas", "add"}
                    and reply is True
                    and type(step.arguments[1]) is ComputedValue
                ):
                    unique = store.items[step.arguments[0]].unique
                    store.compute_info_by_unique[unique] = (store.now, self.cost_s)
                step = steps.send(reply)
        except StopIteration as stop:
            self.value_ages_s.append(store.now - stop.value)
            return
        if type(step) is CallFunction:
            self.computed_at.append(store.now)
            self.running_count += 1
            self.concurrent_computations_max = max(
                self.concurrent_computations_max, self.running_count
            )
            self.run_at(store.now + self.cost_s, steps, "made")
        else:
            assert type(step) is Sleep
            self.wait_count += 1
            self.run_at(store.now + step.seconds, steps)


@pytest.mark.parametrize("ttl", [2, 2.5, 10])
def test_of_500_requests_a_second_none_waits_after_the_first(
    monkeypatch: pytest.MonkeyPatch, ttl: float
) -> None:
    seed = random.randrange(2**32)
    monkeypatch.setattr(random, "random", random.Random(seed).random)
    store = SimulatedStore()
    monkeypatch.setattr(leases, "time", store)
    requests, duration_s, rate_per_s = SimulatedRequests(store, 0.05), 60, 500
    options = GetOrSetOptions(ttl=ttl, early=True)
    for number in range(duration_s * rate_per_s):
        steps = leases._get_or_set_steps(store, "k", options, lambda: None)
        requests.run_at(1000.25 + 1 + number / rate_per_s, steps)
    first_steps = leases._get_or_set_steps(store, "k", options, lambda: None)
    requests.run_at(1000.25, first_steps)
    requests.run()
    assert requests.wait_count == 0, seed
    assert requests.concurrent_computations_max == 1, seed
    assert len(requests.computed_at) <= 1.15 * (duration_s + 1) / ttl + 1, (
        seed,
        len(requests.computed_at),
    )
    assert max(requests.value_ages_s) <= ttl, seed
    assert store.unstored_count == 0


def test_without_early_refresh_the_same_requests_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SimulatedStore()
    monkeypatch.setattr(leases, "time", store)
    requests = SimulatedRequests(store, 0.05)
    for number in range(10 * 500):
        requests.run_at(
            1001 + number / 500,
            leases._get_or_set_steps(store, "k", GetOrSetOptions(ttl=2), lambda: None),
        )
    requests.run()
    assert requests.wait_count > 100


def test_past_its_end_a_value_is_waited_for_and_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for a refresh that outlives the value, unless `stale` lets them go on."""
    monkeypatch.setattr(random, "random", lambda: 0.0)  # no refresh before the end
    for stale in (0, 30):
        store = SimulatedStore()
        monkeypatch.setattr(leases, "time", store)
        requests = SimulatedRequests(store, 0.5)
        options = GetOrSetOptions(ttl=2, early=True, stale=stale)
        requests.run_at(1000.25, leases._get_or_set_steps(store, "k", options, lambda: None))
        for number in range(100):  # the first request after the end makes it, for half a second
            requests.run_at(
                1002.8 + number / 1000, leases._get_or_set_steps(store, "k", options, lambda: None)
            )
        requests.run()
        assert len(requests.computed_at) == 2
        assert (requests.wait_count == 0) == (stale > 0)
        assert (max(requests.value_ages_s) <= 2) == (stale == 0)
