"""An exception of a signal handler ends the call that it interrupts, whatever that call would return."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

import pytest
from faulty_server import FaultyServer, value_of
from glasscache import Client, Codec, UnreadableValue, errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEYS = [f"k{number}" for number in range(20)]
VALUES = {key: value_of(key.encode()) for key in KEYS}


class SignalInterruption(BaseException):
    """What the handler raises."""


class SingleReplyServer(FaultyServer):
    """Replies to one request, and then hangs."""

    def _replies(self, reader: object) -> Iterator[tuple[bytes, bool]]:
        for reply, applies_mode in super()._replies(reader):
            yield reply, applies_mode
            if applies_mode:
                self.mode = "hang"


class RefusingServer(FaultyServer):
    """Refuses every quiet write, the others too with `refuses_all`, and replies to nothing else."""

    def __init__(self, reply: bytes, *, refuses_all: bool) -> None:
        super().__init__()
        self.mode = "hang"
        self._reply = reply
        self._refuses_all = refuses_all

    def _replies(self, reader: Any) -> Iterator[tuple[bytes, bool]]:
        while words := reader.readline().split():
            if words[0] == b"ms":
                reader.read(int(words[2]) + 2)
                yield self._reply, not self._refuses_all and b"q" not in words
            else:
                yield b"MN\r\n", words[0] != b"mn"


class SignalOnUnpickle:
    """A signal comes while it is read."""

    def __setstate__(self, _state: object) -> None:
        signal.raise_signal(signal.SIGALRM)

    def __getstate__(self) -> object:
        return "there is something to set"


@pytest.fixture(autouse=True)
def _interrupting_signals() -> Iterator[None]:
    def raise_interruption(_number: int, _frame: object) -> None:
        raise SignalInterruption

    handler_before = signal.signal(signal.SIGALRM, raise_interruption)
    yield
    signal.signal(signal.SIGALRM, handler_before)


def assert_interrupted(call: Callable[[], object]) -> None:
    """Hold a call that would last for seconds to an interruption."""
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(SignalInterruption):
            call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def client_of_servers(*servers: FaultyServer) -> Iterator[Client]:
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(contextlib.closing(server))
        addresses = [server.address for server in servers]
        yield stack.enter_context(Client(addresses, timeout=2))


@pytest.mark.parametrize("method", ["delete_many", "get_many"])
def test_a_bulk_call_to_hanging_servers_is_interrupted(method: str) -> None:
    first_server, second_server = FaultyServer(), FaultyServer()
    with client_of_servers(first_server, second_server) as client:
        assert client.set_many(VALUES) == {}
        first_server.mode = second_server.mode = "hang"
        assert_interrupted(lambda: getattr(client, method)(KEYS))


def test_a_server_that_replies_for_one_key_only_does_not_hold_a_bulk_call() -> None:
    with client_of_servers(SingleReplyServer()) as client:
        assert_interrupted(lambda: client.delete_many(KEYS))


def test_no_refused_value_is_stored_again_after_an_interruption() -> None:
    refusing_server = RefusingServer(
        b"SERVER_ERROR out of memory storing object\r\n", refuses_all=False
    )
    with client_of_servers(refusing_server) as client:
        assert_interrupted(lambda: client.set_many(VALUES))


@pytest.mark.parametrize("method", ["set", "set_many", "pipeline"])
def test_a_call_that_reads_the_limit_of_a_server_is_interrupted(method: str) -> None:
    def set_by_pipeline(client: Client) -> None:
        with client.pipeline() as pipeline:
            pipeline.set("k", b"v")

    calls: dict[str, Callable[[Client], object]] = {
        "set": lambda client: client.set("k", b"v"),
        "set_many": lambda client: client.set_many({"k": b"v"}),
        "pipeline": set_by_pipeline,
    }
    refusing_server = RefusingServer(
        b"SERVER_ERROR object too large for cache\r\n", refuses_all=True
    )
    with client_of_servers(refusing_server) as client:
        assert_interrupted(lambda: calls[method](client))


@pytest.mark.parametrize("method", ["version", "server_stats", "flush"])
def test_an_interrupted_call_sends_no_further_request(method: str) -> None:
    first_server, second_server = FaultyServer(), FaultyServer()
    with client_of_servers(first_server, second_server) as client:
        first_server.mode = second_server.mode = "hang"
        assert_interrupted(getattr(client, method))


@pytest.mark.parametrize("method", ["set_many", "delete_many", "version", "pipeline"])
def test_a_signal_while_failures_are_reported_is_not_one_of_them(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SignalOnConstruction(errors.ServerUnavailable):
        def __init__(self, message: str = "", **details: Any) -> None:
            signal.raise_signal(signal.SIGALRM)
            super().__init__(message, **details)

    def set_by_pipeline(client: Client) -> None:
        with client.pipeline() as pipeline:
            pipeline.delete("k")

    calls: dict[str, Callable[[Client], object]] = {
        "set_many": lambda client: client.set_many(VALUES),
        "delete_many": lambda client: client.delete_many(KEYS),
        "version": lambda client: client.version(),
        "pipeline": set_by_pipeline,
    }
    monkeypatch.setattr(errors, "ServerUnavailable", SignalOnConstruction)
    with Client("127.0.0.1:1") as client, pytest.raises(SignalInterruption):
        calls[method](client)


def test_a_signal_while_a_value_is_decoded_is_not_an_unreadable_value() -> None:
    codec = Codec(objects="pickle")
    server = FaultyServer()
    server.put(b"foreign", b"?", flags=b"4000000000")
    with client_of_servers(server), Client(server.address, codec=codec) as client:
        client.set("signal", SignalOnUnpickle())
        with pytest.raises(UnreadableValue):
            client.get_many(["foreign"])
        with pytest.raises(SignalInterruption):
            client.get_many(["foreign", "signal"])
        with pytest.raises(SignalInterruption), client.pipeline() as pipeline:
            pipeline.get("foreign")
            pipeline.get("signal")
