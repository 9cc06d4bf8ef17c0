"""When the asyncio client writes: a lone request at once, those of a burst together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from glasscache import AsyncClient
from glasscache._aio_connections import ConnectingClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache import Client, Server


class Recorded:
    """What the connections of a test write, one entry a write, and their transports."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.transports: list[Any] = []


class RecordedTransport:
    """A transport whose writes are recorded."""

    def __init__(self, transport: Any, recorded: Recorded) -> None:
        self._transport, self._recorded = transport, recorded
        recorded.transports.append(transport)

    def write(self, data: bytes) -> None:
        self._recorded.writes.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class RecordedProtocol(asyncio.Protocol):
    """A protocol that has such a transport."""

    def __init__(self, protocol: Any, recorded: Recorded) -> None:
        self._protocol, self._recorded = protocol, recorded
        self.data_received = protocol.data_received
        self.eof_received = protocol.eof_received
        self.connection_lost = protocol.connection_lost

    def connection_made(self, transport: Any) -> None:
        self._protocol.connection_made(RecordedTransport(transport, self._recorded))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Record what the connections of a test write."""
    recorded, open_transport = Recorded(), ConnectingClient._open_transport

    async def open_recorded(
        self: Any, slot: int, protocol_factory: Callable[[], Any], timeout_s: float
    ) -> Any:
        def make_protocol() -> Any:
            return RecordedProtocol(protocol_factory(), recorded)

        return await open_transport(self, slot, make_protocol, timeout_s)

    monkeypatch.setattr(ConnectingClient, "_open_transport", open_recorded)
    return recorded


async def writes_before_others_run(recorded: Recorded, call: Any) -> int:
    """Return how many writes a call has made when the loop runs what was scheduled right after it."""
    before, counts = len(recorded.writes), list[int]()
    task = asyncio.ensure_future(call)
    asyncio.get_running_loop().call_soon(lambda: counts.append(len(recorded.writes) - before))
    await task
    return counts[0]


async def test_a_lone_request_is_written_at_once(
    glasscache_client: Client, glasscache_server: Server, recorded: Recorded
) -> None:
    async with AsyncClient(glasscache_server.address, timeout=5) as client:
        await client.set("key", "value")
        for call in (client.get("key"), client.get_many(["key", "other"]), client.delete("key")):
            assert await writes_before_others_run(recorded, call) == 1


async def test_of_a_burst_the_first_request_is_written_at_once_and_the_others_together(
    glasscache_client: Client, glasscache_server: Server, recorded: Recorded
) -> None:
    async with AsyncClient(glasscache_server.address, timeout=5) as client:
        await client.get("key")
        write_counts = list[int]()
        for call_count in (10, 10, 1, 1, 10):
            before = len(recorded.writes)
            await asyncio.gather(*(client.get(f"key{number}") for number in range(call_count)))
            write_counts.append(len(recorded.writes) - before)
        assert write_counts == [2, 1, 1, 1, 2]
        assert await writes_before_others_run(recorded, client.get("key")) == 0
        assert await writes_before_others_run(recorded, client.get("key")) == 1


async def test_quiet_writes_of_a_task_leave_together(
    glasscache_client: Client, glasscache_server: Server, recorded: Recorded
) -> None:
    async with AsyncClient(glasscache_server.address, timeout=5) as client:
        await client.get("key")
        before = len(recorded.writes)
        for number in range(5):
            await client.set(f"key{number}", number, noreply=True)
        assert len(recorded.writes) == before
        assert await client.get("key4") == 4
        assert len(recorded.writes) == before + 1


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_request_on_a_transport_that_is_closing_counts_as_not_sent(
    glasscache_client: Client,
    glasscache_server: Server,
    recorded: Recorded,
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        async with AsyncClient(glasscache_server.address, timeout=5) as client:
            assert await client.incr("counter", initial=1) == 1
            recorded.transports[-1].close()
            # A change that may have been sent would not be repeated.
            assert await client.incr("counter") == 2
            assert len(recorded.transports) == 2

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
