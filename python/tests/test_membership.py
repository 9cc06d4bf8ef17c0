"""Servers that come and go under load: found in time, no wrong value, no error but the lost one's."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from typing import TYPE_CHECKING

import pytest
from glasscache import AsyncClient, Client, GlasscacheError, Server, _native, discovery
from scripted_server import ScriptedServer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator, Iterator

POLL_INTERVAL_S = 0.1
NOTICE_TIMEOUT_S = 1.2 * POLL_INTERVAL_S + 2.0
"""An interval with its jitter; beyond it only time that a busy machine takes for itself."""

KEYS = [f"key:{number}" for number in range(400)]


@pytest.fixture
def three_servers() -> Iterator[list[Server]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Server(memory="16M")) for _ in range(3)]


class Endpoint(ScriptedServer):
    """A configuration endpoint: replies to `config get cluster` with the nodes it is given."""

    def __init__(self, nodes: list[str]) -> None:
        self.nodes, self._version = nodes, 0
        super().__init__(self._send_configurations)

    def _send_configurations(self, connection: socket.socket) -> None:
        requests = connection.makefile("rb")
        while requests.readline() == b"config get cluster\r\n":
            self._version += 1
            nodes = " ".join("|".join(("", *node.split(":"))) for node in self.nodes)
            configuration = f"{self._version}\n{nodes}\n".encode()
            connection.sendall(
                b"CONFIG cluster 0 %d\r\n%s\r\nEND\r\n" % (len(configuration), configuration)
            )


@contextlib.contextmanager
def notified_by_function(
    nodes: list[str],
) -> Generator[tuple[discovery.Source, Callable[[list[str]], None]]]:
    """A name server in the form of a function."""
    current_nodes = [nodes]
    yield lambda: sorted(current_nodes[-1]), current_nodes.append


@contextlib.contextmanager
def notified_by_endpoint(
    nodes: list[str],
) -> Generator[tuple[discovery.Source, Callable[[list[str]], None]]]:
    """A configuration endpoint over TCP."""
    with Endpoint(nodes) as endpoint:

        def notify(new_nodes: list[str]) -> None:
            endpoint.nodes = new_nodes

        yield discovery.elasticache(endpoint.address), notify


class ObservedCalls:
    """What a worker saw."""

    def __init__(self) -> None:
        self.calls = 0
        self.wrong_values: list[tuple[str, object]] = []
        self.errors: list[tuple[str, str]] = []

    def record_value(self, key: str, value: object) -> None:
        self.calls += 1
        if value is not None and value != f"value of {key}":
            self.wrong_values.append((key, value))

    def record_failure(self, key: str, error: GlasscacheError) -> None:
        self.calls += 1
        self.errors.append((key, f"{type(error).__name__}: {error}"))

    def has_only_failures_of(self, lost_address: str, addresses: list[str]) -> bool:
        """Whether every error was about a key whose server was the lost one."""
        owners = [
            addresses[index]
            for index in _native.server_of(
                "ketama", addresses, [key.encode() for key, _ in self.errors]
            )
        ]
        errors_of_other_servers = [
            error for error, owner in zip(self.errors, owners, strict=True) if owner != lost_address
        ]
        assert not errors_of_other_servers, errors_of_other_servers[:3]
        assert not self.wrong_values, self.wrong_values[:3]
        return True


def read_until_end(client: Client, observed: ObservedCalls, is_over: threading.Event) -> None:
    for number, key in enumerate(itertools.cycle(KEYS)):
        if is_over.is_set():
            return
        try:
            if number % 3:
                observed.record_value(key, client.get(key))
            else:
                client.set(key, f"value of {key}")
        except GlasscacheError as error:
            observed.record_failure(key, error)


def wait_until(condition: Callable[[], bool]) -> float:
    """Wait until a condition holds, and return the seconds that it took."""
    started_at = time.monotonic()
    while not condition():
        assert time.monotonic() - started_at < 30, "it never did"
        time.sleep(0.002)
    return time.monotonic() - started_at


@pytest.mark.parametrize("notified", [notified_by_function, notified_by_endpoint])
def test_an_added_and_a_removed_server_are_noticed_under_load(
    notified: Callable[
        ..., contextlib.AbstractContextManager[tuple[discovery.Source, Callable[..., None]]]
    ],
    three_servers: list[Server],
) -> None:
    first_address, second_address, third_address = (server.address for server in three_servers)
    with (
        notified([first_address, second_address]) as (source, notify),
        Client(source(), timeout=2.0) as client,
    ):
        is_over, observations = threading.Event(), [ObservedCalls() for _ in range(4)]
        with discovery.Watch(client, source, interval=POLL_INTERVAL_S):
            threads = [
                threading.Thread(target=read_until_end, args=(client, observed, is_over))
                for observed in observations
            ]
            for thread in threads:
                thread.start()
            wait_until(lambda: all(observed.calls > 200 for observed in observations))

            notify([first_address, second_address, third_address])
            assert (
                wait_until(lambda: third_address in client.stats()["servers"]) <= NOTICE_TIMEOUT_S
            )
            wait_until(lambda: client.stats()["servers"][third_address]["connections"] > 0)
            assert not [error for observed in observations for error in observed.errors]

            three_servers[1].stop()
            notify([first_address, third_address])
            assert (
                wait_until(lambda: second_address not in client.stats()["servers"])
                <= NOTICE_TIMEOUT_S
            )
            calls_before = [observed.calls for observed in observations]
            errors_before = [len(observed.errors) for observed in observations]
            wait_until(
                lambda: all(
                    observed.calls > count_before + 500
                    for observed, count_before in zip(observations, calls_before, strict=True)
                )
            )
            is_over.set()
            for thread in threads:
                thread.join()

        all_servers = sorted([first_address, second_address, third_address])
        assert all(
            observed.has_only_failures_of(second_address, all_servers) for observed in observations
        )
        # A call that was on its way to the lost server when the ring changed may fail after it.
        assert all(
            len(observed.errors) <= count_before + 1
            for observed, count_before in zip(observations, errors_before, strict=True)
        )
        assert sorted(client.get_many(KEYS)) == sorted(
            key for key in KEYS if client.get(key) is not None
        )


def test_tasks_go_on_while_servers_come_and_go(three_servers: list[Server]) -> None:
    first_address, second_address, third_address = (server.address for server in three_servers)
    current_nodes = [[first_address, second_address]]

    async def read_until_end_async(
        client: AsyncClient, observed: ObservedCalls, is_over: asyncio.Event
    ) -> None:
        for number, key in enumerate(itertools.cycle(KEYS)):
            if is_over.is_set():
                return
            try:
                if number % 3:
                    observed.record_value(key, await client.get(key))
                else:
                    await client.set(key, f"value of {key}")
            except GlasscacheError as error:
                observed.record_failure(key, error)

    async def wait_until_async(condition: Callable[[], bool]) -> float:
        started_at = time.monotonic()
        while not condition():
            assert time.monotonic() - started_at < 30, "it never did"
            await asyncio.sleep(0.002)
        return time.monotonic() - started_at

    async def run() -> list[ObservedCalls]:
        observations, is_over = [ObservedCalls() for _ in range(8)], asyncio.Event()
        async with AsyncClient(current_nodes[-1], timeout=2.0) as client:
            keep_up_task = asyncio.create_task(
                discovery.keep_up(
                    client, lambda: sorted(current_nodes[-1]), interval=POLL_INTERVAL_S
                )
            )
            tasks = [
                asyncio.create_task(read_until_end_async(client, observed, is_over))
                for observed in observations
            ]
            await wait_until_async(lambda: all(observed.calls > 100 for observed in observations))
            current_nodes.append([first_address, second_address, third_address])
            assert (
                await wait_until_async(lambda: third_address in client._names.values())
                <= NOTICE_TIMEOUT_S
            )
            await wait_until_async(
                lambda: client.stats()["servers"][third_address]["speaks_meta"] is True
            )
            assert not [error for observed in observations for error in observed.errors]
            current_nodes.append(
                [first_address, third_address]
            )  # it leaves, and is still there: nothing may fail
            assert (
                await wait_until_async(lambda: second_address not in client._names.values())
                <= NOTICE_TIMEOUT_S
            )
            calls_before = min(observed.calls for observed in observations)
            await wait_until_async(
                lambda: all(observed.calls > calls_before + 300 for observed in observations)
            )
            assert not [error for observed in observations for error in observed.errors]
            await asyncio.to_thread(three_servers[1].stop)
            await wait_until_async(
                lambda: all(observed.calls > calls_before + 600 for observed in observations)
            )
            is_over.set()
            await asyncio.gather(*tasks)
            keep_up_task.cancel()
            await client.get_many(KEYS)
        return observations

    for observed in asyncio.run(run()):
        assert not observed.wrong_values
        assert not observed.errors


def test_calls_in_flight_end_where_they_began_and_connections_that_stay_are_kept(
    three_servers: list[Server],
) -> None:
    first_address, second_address, third_address = (server.address for server in three_servers)
    with Client([first_address, second_address], timeout=2.0) as client:
        assert not client.set_many({key: key for key in KEYS})
        connections_before = int(client.server_stats()[first_address]["total_connections"])
        client.set_servers([first_address, third_address])
        assert set(client.stats()["servers"]) == {first_address, third_address}
        client.set_servers([first_address])
        assert {key for key in KEYS if client.get(key) == key}
        assert int(client.server_stats()[first_address]["total_connections"]) == connections_before
        client.set_servers([second_address, first_address])
        assert client.get_many(KEYS) == {key: key for key in KEYS if client.get(key) is not None}
        with pytest.raises(GlasscacheError):
            client.set_servers([])
        assert set(client.stats()["servers"]) == {first_address, second_address}
