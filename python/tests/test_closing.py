"""What an asyncio client opens is closed when the client or its loop ends, wherever its calls stand then.

Random programs cancel calls, probes, changes of servers and `close()` itself at any of their awaits, against
servers that are slow, fall silent or close at any step of connecting, of the handshake and of a reply. No
garbage is collected meanwhile: the servers must see every connection end, and nothing may be left to a
collector.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import select
import socket
import ssl
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from certificates import Authority
from glasscache import AsyncClient, GlasscacheError, Server
from scripted_server import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator


PROGRAMS = int(os.environ.get("GLASSCACHE_TEST_CLOSINGS", "10"))
"""How many programs of each kind of connection and loop; 1,000 in a long run."""
SEED = int(os.environ.get("GLASSCACHE_TEST_SEED", "1"))

STEP_SECONDS = [0.0, 0.0, 0.0, 0.002, 0.01]


class SlowRelay(ScriptedServer):
    """Relays to a server, with pauses; a connection falls silent or ends after some steps."""

    def __init__(self, target: str, rng: random.Random, context: ssl.SSLContext | None) -> None:
        self._target, self._context, self._rng = target, context, rng
        self._is_over = threading.Event()
        super().__init__(self._relay)

    def close(self) -> None:
        self._is_over.set()
        super().close()

    def wait_until_all_are_closed(self) -> bool:
        """Return whether the other end closes every connection within ten seconds."""
        ends_at = time.monotonic() + 10
        while self.connections and time.monotonic() < ends_at:
            time.sleep(0.001)
        return not self.connections

    def _relay(self, connection: socket.socket) -> None:
        last_step, ends = self._rng.choice([0, 1, 2, 3, 100, 100]), self._rng.random() < 0.3
        with contextlib.suppress(OSError):
            self._relay_steps(connection, last_step)
        if not ends:
            self._wait_for_end(connection)

    def _relay_steps(self, connection: socket.socket, last_step: int) -> None:
        if not last_step:
            return
        time.sleep(self._rng.choice(STEP_SECONDS))
        host, port = self._target.split(":")
        with socket.create_connection((host, int(port))) as server:
            incoming = ssl.MemoryBIO(), ssl.MemoryBIO()
            session = None
            if self._context is not None:
                session = self._context.wrap_bio(*incoming, server_side=True)
            for _ in range(last_step):
                readable, _, _ = select.select([connection, server], [], [], 0.05)
                if self._is_over.is_set():
                    return
                for readable_socket in readable:
                    received = readable_socket.recv(65536)
                    if not received:
                        return
                    time.sleep(self._rng.choice(STEP_SECONDS))
                    if session is None:
                        other = server if readable_socket is connection else connection
                        other.sendall(received)
                    else:
                        is_reply = readable_socket is server
                        self._relay_encrypted(session, incoming, received, is_reply, server)
                        connection.sendall(incoming[1].read())

    @staticmethod
    def _relay_encrypted(
        session: ssl.SSLObject,
        incoming: tuple[ssl.MemoryBIO, ssl.MemoryBIO],
        received: bytes,
        is_reply: bool,
        server: socket.socket,
    ) -> None:
        if is_reply:
            session.write(received)
            return
        incoming[0].write(received)
        with contextlib.suppress(ssl.SSLWantReadError):
            session.do_handshake()
            while request := session.read(65536):
                server.sendall(request)

    def _wait_for_end(self, connection: socket.socket) -> None:
        """Read, and reply to nothing, until the other end closes."""
        while not self._is_over.is_set():
            readable, _, _ = select.select([connection], [], [], 0.05)
            if readable and not connection.recv(65536):
                return


async def pause(rng: random.Random) -> None:
    """Let the loop run for some of its iterations, or some milliseconds."""
    for _ in range(rng.randrange(12)):
        await asyncio.sleep(0)
    if rng.random() < 0.5:
        await asyncio.sleep(rng.choice([0.001, 0.005, 0.02]))


def begin_call(
    client: AsyncClient, rng: random.Random, addresses: list[str]
) -> Coroutine[Any, Any, Any]:
    deadline_s = rng.choice([0.002, 0.01, 0.05, 0.3])
    key = f"k{rng.randrange(10)}"
    match rng.randrange(6):
        case 0:
            return client.get_many([f"k{number}" for number in range(10)], deadline=deadline_s)
        case 1:
            return client.set(key, 1, deadline=deadline_s)
        case 2:
            return client.set(key, bytes(200_000), noreply=True, deadline=deadline_s)
        case 3:
            return change_servers(client, rng.sample(addresses, rng.randrange(1, 3)))
        case _:
            return client.get(key, deadline=deadline_s)


async def change_servers(client: AsyncClient, addresses: list[str]) -> None:
    client.set_servers(addresses)


async def run_program(rng: random.Random, addresses: list[str], tls: Any) -> None:
    """Make calls, cancel some, and end in one of the ways in which programs end."""
    client = AsyncClient(
        addresses[:1], timeout=0.05, tls=tls, on_error=rng.choice(["raise", "miss"])
    )
    tasks: list[asyncio.Task[Any]] = []
    for _ in range(rng.randrange(1, 6)):
        tasks.append(asyncio.create_task(begin_call(client, rng, addresses)))
        await pause(rng)
        if rng.random() < 0.5:
            rng.choice(tasks).cancel()
    match rng.randrange(4):
        case 0:
            await asyncio.gather(*(client.close() for _ in range(rng.randrange(1, 4))))
        case 1:
            closing = asyncio.create_task(client.close())
            await pause(rng)
            closing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await closing
        case 2:
            await asyncio.gather(*tasks, return_exceptions=True)
        case _:
            pass  # the loop ends with calls that have begun
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, GlasscacheError), error


def run_uvloop(call: Coroutine[Any, Any, Any]) -> None:
    pytest.importorskip("uvloop").run(call)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@contextlib.contextmanager
def nothing_is_left_to_a_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
            gc.collect()
        assert [str(warning.message) for warning in caught] == []
    finally:
        gc.enable()


@pytest.mark.parametrize("run", [asyncio.run, run_uvloop])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_every_socket_is_closed_when_a_client_or_its_loop_ends(
    is_encrypted: bool,
    run: Callable[[Coroutine[Any, Any, Any]], None],
    authority: Authority,
    server: Server,
) -> None:
    context, tls = None, None
    if is_encrypted:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        identity = authority.sign("relay")
        context.load_cert_chain(identity.chain, identity.key)
        tls = authority.context()
    with (
        nothing_is_left_to_a_collector(),
        SlowRelay(server.address, random.Random(SEED), context) as relay,
        SlowRelay(server.address, random.Random(SEED + 1), context) as other_relay,
    ):
        addresses = [f"localhost:{each.port}" for each in (relay, other_relay)]
        for program in range(PROGRAMS):
            run(run_program(random.Random(f"{SEED}/{program}"), addresses, tls))
            for each in (relay, other_relay):
                assert each.wait_until_all_are_closed(), (SEED, program)
