"""Whatever ends a request, others do not wait for what it no longer fetches; and no client delays another."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest
from glasscache.web import CacheASGI, CacheSettings
from glasscache.web._entry import PendingRecord, decode
from glasscache.web._exchange import Exchange
from glasscache.web._shared_state import SharedState
from glasscache.web._single_flight import AsyncSingleFlight, SyncSingleFlight
from glasscache.web._urls import request_of_url

from web.harness import Clock, Origin, Reply, key_of_url, send_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache import AsyncClient

FRESH = {"cache-control": "max-age=60"}
SETTINGS = CacheSettings(lease=5)
AT_ONCE_S = 2.0
"""Far below the lease, and above what a busy machine takes for a request."""


class SlowNetwork:
    """A client whose server is some milliseconds away."""

    def __init__(self, client: AsyncClient, seconds: float) -> None:
        self._client, self._seconds = client, seconds

    def __getattr__(self, name: str) -> Any:
        async def call_slowly(*arguments: Any, **options: Any) -> Any:
            await asyncio.sleep(self._seconds / 2)
            outcome = await getattr(self._client, name)(*arguments, **options)
            await asyncio.sleep(self._seconds / 2)
            return outcome

        return call_slowly


async def is_pending(client: Any, cache: CacheASGI, path: str) -> bool:
    key = key_of_url(cache.shared, f"http://shop.example{path}")
    data = await client.get(key)
    return data is not None and isinstance(
        decode(data, bytes.fromhex(key.partition(":")[2])), PendingRecord
    )


async def seconds_of(awaitable: Any) -> float:
    began_at = time.monotonic()
    await awaitable
    return time.monotonic() - began_at


async def test_a_flight_ends_under_the_key_under_which_it_began(client: AsyncClient) -> None:
    origin = Origin(lambda _: {**FRESH, "vary": "accept-encoding"})
    origin.delay_s = 0.2
    caches = [CacheASGI(origin, client, settings=SETTINGS) for _ in range(2)]

    async def request_later() -> Reply:
        await asyncio.sleep(0.05)
        return await send_request(caches[1], fields={"accept-encoding": "br"})

    await asyncio.gather(
        send_request(caches[0], fields={"accept-encoding": "gzip"}), request_later()
    )
    assert [len(cache._single_flight) for cache in caches] == [0, 0]
    await client.flush()
    requested = send_request(caches[1], fields={"accept-encoding": "br"})
    assert await seconds_of(requested) < AT_ONCE_S


class DeadlineOfOuterMiddleware(BaseException):
    """As a worker's that is told to stop a request."""


@pytest.mark.parametrize("raised_class", [ValueError, DeadlineOfOuterMiddleware, KeyboardInterrupt])
@pytest.mark.parametrize("when", ["before the head", "after the head", "in the body"])
async def test_an_application_that_raises_leaves_nothing_behind(
    client: AsyncClient, when: str, raised_class: type[BaseException]
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if when == "before the head":
            raise raised_class
        fields = [(b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        if when == "in the body":
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise raised_class

    cache = CacheASGI(app, client, settings=SETTINGS)
    # Awaited in the same task: an event loop does not catch a KeyboardInterrupt of another.
    with pytest.raises(raised_class):
        await send_request(cache, "/a")
    await cache.settle()
    assert (len(cache._single_flight), cache._spool.is_full) == (0, False)
    assert not await is_pending(client, cache, "/a")
    cache.app = Origin(lambda _: FRESH)
    assert await seconds_of(send_request(cache, "/a")) < AT_ONCE_S


@pytest.mark.parametrize("cancel_count", [1, 3])
async def test_a_cancelled_request_gives_back_what_it_acquired(
    client: AsyncClient, cancel_count: int
) -> None:
    network = SlowNetwork(client, 0.01)
    origin = Origin(lambda _: FRESH)
    origin.delay_s = 0.01
    cache = CacheASGI(origin, network, settings=SETTINGS)  # type: ignore[arg-type]
    await send_request(cache, "/warm")
    for number in range(30):
        request = asyncio.ensure_future(send_request(cache, f"/{number}"))
        await asyncio.sleep(number * 0.002)
        for _ in range(cancel_count):  # as the scopes of anyio do until the task has ended
            request.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(request, return_exceptions=True)
        await cache.settle()
        assert len(cache._single_flight) == 0
        assert not await is_pending(client, cache, f"/{number}"), number


async def test_a_cancelled_request_gives_the_lease_of_a_refresh_back(client: AsyncClient) -> None:
    clock = Clock(time.time())
    origin = Origin(lambda _: {"cache-control": "max-age=10, stale-while-revalidate=60"})
    cache = CacheASGI(origin, SlowNetwork(client, 0.01), settings=SETTINGS)  # type: ignore[arg-type]
    cache.shared.clock = clock
    lease_key = key_of_url(cache.shared, "http://shop.example/a") + ":l"
    await send_request(cache, "/a")
    origin.delay_s = 0.01
    for number in range(25):
        clock.now += 15
        request = asyncio.ensure_future(send_request(cache, "/a"))
        await asyncio.sleep(number * 0.002)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await cache.settle()
        assert await client.get(lease_key) is None, number
        await send_request(cache, "/a")
        await cache.settle()


@pytest.mark.parametrize(
    "headers",
    [
        {"cache-control": "no-store"},
        {"cache-control": "private, max-age=60"},
        {"content-type": "text/event-stream", "cache-control": "no-cache"},
        {"content-type": "text/event-stream; charset=utf-8", "cache-control": "max-age=60"},
        {"content-type": "multipart/x-mixed-replace; boundary=b", "cache-control": "max-age=60"},
        {},
    ],
)
async def test_a_response_that_is_not_stored_is_waited_for_up_to_its_head(
    client: AsyncClient, headers: dict[str, str]
) -> None:
    may_end = asyncio.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.05)
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await may_end.wait()
        await send({"type": "http.response.body", "body": b"last"})

    caches = [CacheASGI(stream, client, settings=SETTINGS) for _ in range(2)]
    first_parts: list[float] = []

    async def begin_stream(cache: CacheASGI) -> None:
        began_at = time.monotonic()

        async def send(message: Any) -> None:
            if message.get("body") == b"first":
                first_parts.append(time.monotonic() - began_at)

        await cache(scope_of("/events"), asyncio.Event().wait, send)

    streams = [asyncio.ensure_future(begin_stream(caches[number % 2])) for number in range(6)]
    await asyncio.sleep(0.5)
    count_before_end = len(first_parts)
    may_end.set()
    await asyncio.gather(*streams)
    assert count_before_end == 6, first_parts


def scope_of(path: str, fields: dict[str, str] | None = None) -> dict[str, Any]:
    all_fields = {"host": "shop.example", **(fields or {})}
    return {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "scheme": "http",
        "query_string": b"", "http_version": "1.1", "extensions": {},
        "headers": [(name.encode(), value.encode()) for name, value in all_fields.items()],
    }  # fmt: skip


@pytest.mark.parametrize("part_count", [1, 40])
@pytest.mark.parametrize("has_length", [True, False])
async def test_a_client_that_does_not_read_delays_no_other(
    client: AsyncClient, part_count: int, has_length: bool
) -> None:
    body = bytes(1 << 20)
    part = body[: len(body) // part_count]
    headers = {
        **FRESH,
        **({"content-length": str(len(part) * part_count)} if has_length else {}),
    }
    origin = Origin(lambda _: (200, headers, [part] * part_count))
    cache = CacheASGI(origin, client, settings=SETTINGS)
    is_reading = asyncio.Event()
    received: list[bytes] = []

    async def send_to_slow_client(message: Any) -> None:
        received.append(message.get("body", b""))
        if message["type"] == "http.response.body":
            await is_reading.wait()

    slow = asyncio.ensure_future(cache(scope_of("/big"), asyncio.Event().wait, send_to_slow_client))
    await asyncio.sleep(0.01)
    for _ in range(3):
        began_at = time.monotonic()
        reply = await send_request(cache, "/big")
        assert time.monotonic() - began_at < AT_ONCE_S
        assert len(reply.body) == len(part) * part_count
    assert len(origin.calls) == 1
    assert not slow.done()
    is_reading.set()
    await slow
    assert sum(map(len, received)) == len(part) * part_count


async def test_what_waits_for_slow_clients_is_bounded(client: AsyncClient) -> None:
    part, sent_counts = bytes(100_000), [0, 0, 0, 0]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        number = int(scope["path"][1:])
        fields = [(b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        for _ in range(50):
            sent_counts[number] += 1
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    cache = CacheASGI(app, client, settings=CacheSettings(max_bytes=1_000_000))
    is_reading = asyncio.Event()

    async def send_to_slow_client(message: Any) -> None:
        await is_reading.wait()

    requests = [
        asyncio.ensure_future(
            cache(scope_of(f"/{number}"), asyncio.Event().wait, send_to_slow_client)
        )
        for number in range(4)
    ]
    await asyncio.sleep(0.3)
    assert sum(sent_counts) * len(part) < 2_000_000
    is_reading.set()
    await asyncio.gather(*requests)
    assert (sent_counts, cache._spool._waiting_bytes) == ([50] * 4, 0)


async def test_a_client_that_leaves_ends_the_fetch_of_its_application(client: AsyncClient) -> None:
    origin = Origin(lambda _: (200, FRESH, [b"part"] * 10))
    cache = CacheASGI(origin, client, settings=SETTINGS)

    async def send_to_lost_client(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise OSError("the client has left")

    with pytest.raises(OSError, match="left"):
        await cache(scope_of("/a"), asyncio.Event().wait, send_to_lost_client)
    await cache.settle()
    assert len(cache._single_flight) == 0
    assert await seconds_of(send_request(cache, "/a")) < AT_ONCE_S


@pytest.mark.parametrize("status", [200, 304, 503])
async def test_what_an_application_does_after_its_response_delays_no_response(
    client: AsyncClient, status: int
) -> None:
    clock, may_end = Clock(time.time()), asyncio.Event()
    headers = {"cache-control": "max-age=10, stale-if-error=600", "etag": '"a"'}
    cache = CacheASGI(Origin(lambda _: headers), client, settings=SETTINGS)
    cache.shared.clock = clock
    await send_request(cache)
    clock.now += 20

    async def app_with_background_task(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        await may_end.wait()

    cache.app = app_with_background_task
    has_reply = asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            has_reply.set()

    request = asyncio.ensure_future(cache(scope_of("/"), asyncio.Event().wait, send))
    await asyncio.wait_for(has_reply.wait(), AT_ONCE_S)
    assert not request.done()
    may_end.set()
    await request


async def test_an_exception_after_a_replaced_error_is_logged(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(time.time())
    headers = {"cache-control": "max-age=10, stale-if-error=600"}
    cache = CacheASGI(Origin(lambda _: headers), client, settings=SETTINGS)
    cache.shared.clock = clock
    await send_request(cache)
    clock.now += 20

    async def app(scope: Any, receive: Any, send: Any) -> None:
        """Do as Starlette: send a 500, and raise again for the server's log."""
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"Internal Server Error"})
        raise RuntimeError("no database")

    cache.app = app
    reply = await send_request(cache)
    assert (reply.status, reply.body) == (200, b"body 1")
    assert "stale-if-error" in reply.cache_status
    assert "no database" in caplog.text


async def test_a_request_waits_once_however_it_waits(client: AsyncClient) -> None:
    settings = CacheSettings(lease=30, wait=0.6)
    origin = Origin(lambda _: FRESH)
    origin.delay_s = 0.01
    cache = CacheASGI(origin, client, settings=settings)
    await send_request(cache, "/warm")
    flight = cache._single_flight.begin(key_of_url(cache.shared, "http://shop.example/a"), 30)
    assert flight is not None

    async def end_flight_late() -> None:
        await asyncio.sleep(0.4)
        other = CacheASGI(origin, client, settings=settings)
        origin.delay_s = 10
        fetch = asyncio.ensure_future(send_request(other, "/a"))  # another process is quicker
        await asyncio.sleep(0.05)
        origin.delay_s = 0.01
        flight.end()
        await asyncio.sleep(1)
        fetch.cancel()
        await asyncio.gather(fetch, return_exceptions=True)
        await other.settle()

    later = asyncio.ensure_future(end_flight_late())
    seconds = await seconds_of(send_request(cache, "/a"))
    assert 0.5 < seconds < 0.95
    await later


@pytest.mark.parametrize("digits", ["9" * 5000, "0" * 5000 + "1", "9" * 19])
async def test_a_range_of_many_digits_is_a_position(client: AsyncClient, digits: str) -> None:
    clock = Clock(time.time())
    origin = Origin(lambda _: {"cache-control": "max-age=10, stale-while-revalidate=60"})
    cache = CacheASGI(origin, client)
    cache.shared.clock = clock
    await send_request(cache)
    clock.now += 15
    for value in (f"bytes={digits}-", f"bytes=0-{digits}", f"bytes=-{digits}"):
        reply = await send_request(cache, fields={"range": value})
        assert reply.status in {200, 206, 416}
    await cache.settle()
    assert (await send_request(cache)).body == b"body 2"


@pytest.mark.parametrize("single_flight_class", [AsyncSingleFlight, SyncSingleFlight])
async def test_a_flight_is_over_when_its_time_is(single_flight_class: Callable[[], Any]) -> None:
    flights = single_flight_class()
    first = flights.begin("k", 0.05)
    assert flights.begin("k", 0.05) is None
    waiting = flights.wait("k", 10)
    if waiting is not None:
        await waiting
    second = flights.begin("k", 10)
    assert second is not None
    first.end()  # of a request that went on for longer: not the second's
    assert flights.is_under_way("k")
    second.end()
    assert len(flights) == 0
    assert not flights.is_under_way("k")


async def test_a_second_head_is_left_to_the_server_and_nothing_is_stored(
    client: AsyncClient,
) -> None:
    head = {
        "type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=60")],
    }  # fmt: skip

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(head)
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await send(head)

    sent_types: list[str] = []

    async def send(message: Any) -> None:
        if message["type"] in sent_types and message["type"].endswith("start"):
            raise RuntimeError("a second head")
        sent_types.append(message["type"])

    cache = CacheASGI(app, client, settings=SETTINGS)
    with pytest.raises(RuntimeError, match="a second head"):
        await cache(scope_of("/a"), asyncio.Event().wait, send)
    await cache.settle()
    assert (cache.counters["stored"], len(cache._single_flight)) == (0, 0)


@pytest.mark.parametrize("with_raw_path", [True, False, None])
async def test_a_server_need_not_have_a_raw_path(
    client: AsyncClient, with_raw_path: bool | None
) -> None:
    origin = Origin(lambda call: (200, FRESH, call["path"].encode()))
    cache = CacheASGI(origin, client)
    for path, raw_path in (("/a b", b"/a%20b"), ("/a%20b", b"/a%2520b")):
        for _ in range(2):
            reply = Reply()

            async def send(message: Any, reply: Reply = reply) -> None:
                reply.parts.append(message.get("body", b""))

            scope = scope_of(path)
            scope["raw_path"] = raw_path if with_raw_path else None
            if with_raw_path is None:
                del scope["raw_path"]
            await cache(scope, asyncio.Event().wait, send)
            assert reply.body == path.encode()
    assert len(origin.calls) == 2


def test_the_time_to_wait_begins_with_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedState(None, CacheSettings(wait=2.0))
    seconds = itertools.count(100.0, 0.5)
    monkeypatch.setattr("glasscache.web._exchange.time.monotonic", lambda: next(seconds))
    exchange = Exchange(shared, None, request_of_url("http://shop.example/"))
    assert [exchange._remaining_wait() for _ in range(5)] == [1.5, 1.0, 0.5, 0.0, -0.5]
