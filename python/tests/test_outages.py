"""With on_error="miss", what was changed while the server was away is not read as it was before."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client
from scripted_server import Relay

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache import Server

ROUNDS = int(os.environ.get("GLASSCACHE_TEST_OUTAGES", "2"))
"""100 in a long run, each with an outage of `OUTAGE_S`."""
OUTAGE_S = float(os.environ.get("GLASSCACHE_TEST_OUTAGE_S", "0.4"))
THREADS = 3


class CuttableRelay(Relay):
    """While cut it refuses and closes connections, or lets nothing pass."""

    def __init__(self, server_address: str, mode: str) -> None:
        self.mode, self._is_cut = mode, False
        # What comes in the outage is lost.
        super().__init__(server_address, lambda chunk, _: None if self._is_cut else chunk)

    def cut(self) -> None:
        self._is_cut = True
        if self.mode == "refused":
            self.close()

    def fix(self) -> None:
        self.drop_connections()
        self._is_cut = False
        if self.mode == "refused":
            self.listen()


@pytest.fixture(params=["refused", "silent"])
def proxy(request: pytest.FixtureRequest, server: Server) -> Any:
    with CuttableRelay(server.address, request.param) as proxy:
        yield proxy


class AwaitedClient:
    """An asyncio client under the methods of a blocking one, on a loop that runs in a thread."""

    def __init__(self, address: str, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._client = AsyncClient(address, **settings)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            method = getattr(self._client, name)
            return asyncio.run_coroutine_threadsafe(
                method(*arguments, **options), self._loop
            ).result(30)

        return call


CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "delete": lambda client, key: client.delete(key),
    "set": lambda client, key: client.set(key, "new"),
    "replace": lambda client, key: client.replace(key, "new"),
    "append": lambda client, key: client.append(key, "+"),
    "prepend": lambda client, key: client.prepend(key, "+"),
    "cas": lambda client, key: client.cas(key, "new", 1),
    "quiet set": lambda client, key: client.set(key, "new", noreply=True),
    "quiet delete": lambda client, key: client.delete(key, noreply=True),
    "set_many": lambda client, key: client.set_many({key: "new"}),
    "delete_many": lambda client, key: client.delete_many([key]),
    "incr": lambda client, key: client.incr(key),
    "decr": lambda client, key: client.decr(key, 2),
    "incr initial": lambda client, key: client.incr(key, initial=1),
    "split set": lambda client, key: client.set(key, "new" * 300_000, split=True),
}


@pytest.mark.parametrize("make_client", [Client, AwaitedClient])
@pytest.mark.parametrize("change_name", CHANGES)
def test_a_change_that_was_not_made_in_an_outage_leaves_no_older_value(
    change_name: str, make_client: Callable[..., Any], proxy: CuttableRelay, namespace: str
) -> None:
    client = make_client(proxy.address, timeout=0.1, on_error="miss", namespace=namespace)
    old_value: Any = 10 if "cr" in change_name else "old"
    store(client, "k", old_value)
    proxy.cut()
    outcome = CHANGES[change_name](client, "k")
    assert not outcome or "many" in change_name or "quiet" in change_name, outcome
    proxy.fix()
    wait_until_up(client)
    assert client.get("k") != old_value


@pytest.mark.parametrize("make_client", [Client, AwaitedClient])
def test_what_changes_nothing_and_locks_of_others_stay(
    make_client: Callable[..., Any], proxy: CuttableRelay, namespace: str
) -> None:
    client = make_client(proxy.address, timeout=0.1, on_error="miss", namespace=namespace)
    for key in ("read", "lock", "touched"):
        store(client, key, "old")
    proxy.cut()
    assert client.get("read") is None
    assert not client.add("lock", "mine")
    assert not client.touch("touched", 600)
    proxy.fix()
    wait_until_up(client)
    stored = {"read": "old", "touched": "old"}
    repeat_until(lambda: client.get_many(["read", "touched"]) == stored)
    # One that was sent may have taken the lock: then it is given back.
    if proxy.mode != "silent":
        repeat_until(lambda: client.get("lock") == "old")


@pytest.mark.parametrize("make_client", [Client, AwaitedClient])
def test_a_tag_that_was_invalidated_in_an_outage_is_invalid(
    make_client: Callable[..., Any], proxy: CuttableRelay, namespace: str
) -> None:
    client = make_client(proxy.address, timeout=0.1, on_error="miss", namespace=namespace)
    inner = client._client if isinstance(client, AwaitedClient) else client
    with Client(proxy.server_address, namespace=namespace) as other:
        tagged = other.tagged("prices")
        assert tagged.set("k", "old")
        assert tagged.get("k") == "old"
        repeat_until(lambda: client.invalidate_tag("prices") is True)
        assert tagged.set("k", "old")
        proxy.cut()
        assert client.invalidate_tag("prices") is False
        if inner is client:
            assert inner.tagged("prices", "other").invalidate() is False
        proxy.fix()
        wait_until_up(client)
        assert tagged.get("k") is None
        repeat_until(lambda: client.invalidate_tag("prices") is True)


def repeat_until(succeeds: Callable[[], bool]) -> None:
    """Repeat a call outside of outages until it succeeds; on a busy machine an attempt may time out."""
    deadline = time.monotonic() + 20
    while not succeeds():
        assert time.monotonic() < deadline, "every attempt failed although there was no outage"
        time.sleep(0.01)


def store(client: Any, key: str, value: Any) -> None:
    repeat_until(lambda: client.set(key, value))


def wait_until_up(client: Any) -> None:
    store(client, "canary", 1)


@pytest.mark.parametrize("make_client", [Client, AwaitedClient])
def test_no_older_value_is_read_after_outages_under_load(
    make_client: Callable[..., Any], proxy: CuttableRelay, namespace: str
) -> None:
    """What was changed in an outage is new or gone afterwards, whichever thread reads it first."""
    client = make_client(proxy.address, timeout=0.1, on_error="miss", namespace=namespace)
    seed = int(os.environ.get("GLASSCACHE_TEST_SEED", str(random.randrange(1 << 30))))
    for round_number in range(ROUNDS):
        outage = Outage(client, proxy, f"{round_number}:", seed + round_number)
        outage.run()
        assert outage.old_reads == [], f"seed {seed}, of {len(outage.changed)} keys"


class Outage:
    """An outage during which threads change keys, and after which they read them."""

    def __init__(self, client: Any, proxy: CuttableRelay, prefix: str, seed: int) -> None:
        self._client, self._proxy, self._prefix, self._seed = client, proxy, prefix, seed
        self._old_values: dict[str, Any] = {
            f"{prefix}{number}": "old" if number % 3 else 5 for number in range(300)
        }
        self.changed: set[str] = set()
        self.old_reads: list[str] = []
        self._is_over, self._is_mended = threading.Event(), threading.Event()

    def run(self) -> None:
        repeat_until(lambda: not self._client.set_many(self._old_values))
        self._proxy.cut()
        changers, readers = (
            [
                threading.Thread(target=work, args=(random.Random(self._seed + n),))
                for n in range(THREADS)
            ]
            for work in (self._change_keys, self._read_keys)
        )
        for thread in changers + readers:
            thread.start()
        time.sleep(OUTAGE_S)
        self._is_over.set()
        for thread in changers:
            thread.join()
        self._proxy.fix()
        self._is_mended.set()
        for thread in readers:
            thread.join()

    def _change_keys(self, choice: random.Random) -> None:
        keys = list(self._old_values)
        while not self._is_over.is_set():
            key = choice.choice(keys)
            names = ["delete", "set", "set_many", "delete_many"]
            if self._old_values[key] == 5:
                names = ["incr", "decr", "delete"]
            CHANGES[choice.choice(names)](self._client, key)
            self.changed.add(key)

    def _read_keys(self, choice: random.Random) -> None:
        self._is_mended.wait()
        candidates, deadline = sorted(self.changed), time.monotonic() + 20
        while time.monotonic() < deadline and self._client.get("canary") != self._prefix:
            self._check(choice.sample(candidates, min(3, len(candidates))))
            self._check_one(choice.choice(candidates))
            self._client.set("canary", self._prefix)
        self._check(candidates)

    def _check(self, keys: list[str]) -> None:
        values = self._client.get_many(keys)
        self.old_reads += [key for key, value in values.items() if value == self._old_values[key]]

    def _check_one(self, key: str) -> None:
        if self._client.get(key) == self._old_values[key]:
            self.old_reads.append(key)
