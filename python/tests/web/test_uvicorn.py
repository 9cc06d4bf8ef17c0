"""The HTTP cache in real uvicorn processes, over real connections."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from web.uvicorn_process import BODY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glasscache import Client, Server

PROGRAM = Path(__file__).parent / "uvicorn_process.py"
PARSERS = ["h11", *(["httptools"] if importlib.util.find_spec("httptools") else [])]


class ResponseAndBody(NamedTuple):
    """A response whose body has been read."""

    response: http.client.HTTPResponse
    body: bytes


@contextlib.contextmanager
def run_uvicorn(store_address: str, parser: str = "h11") -> Iterator[int]:
    """Run a uvicorn process, and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, str(PROGRAM), str(listener.fileno()), parser, store_address]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()])
        try:
            yield listener.getsockname()[1]
        finally:
            process.terminate()
            process.wait(20)


def send_request(port: int, path: str, method: str = "GET", **fields: str) -> ResponseAndBody:
    """Send one request on a connection of its own."""
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers={"host": "shop.example", **headers})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return ResponseAndBody(response, body)


@pytest.mark.parametrize("parser", PARSERS)
def test_hits_heads_ranges_and_304s_are_sent_by_a_real_server(
    glasscache_client: Client, glasscache_server: Server, parser: str
) -> None:
    with run_uvicorn(glasscache_server.address, parser) as port:
        assert send_request(port, "/slow").body == BODY
        response, body = send_request(port, "/slow")
        assert (response.status, body, response.getheader("age")) == (200, BODY, "0")
        assert "; hit" in (response.getheader("cache-status") or "")
        response, body = send_request(port, "/slow", "HEAD")
        assert (response.getheader("content-length"), body) == (str(len(BODY)), b"")
        response, body = send_request(port, "/slow", range="bytes=5-9")
        assert (response.status, body) == (206, BODY[5:10])
        response, body = send_request(port, "/slow", if_none_match='"v"')
        assert (response.status, body) == (304, b"")
        assert glasscache_client.get("runs:/slow") == 1


def test_processes_share_one_fetch(glasscache_client: Client, glasscache_server: Server) -> None:
    with (
        run_uvicorn(glasscache_server.address) as first_port,
        run_uvicorn(glasscache_server.address) as second_port,
    ):
        with ThreadPoolExecutor(20) as pool:
            ports = [first_port, second_port] * 10
            bodies = {body for _, body in pool.map(lambda port: send_request(port, "/slow"), ports)}
        assert bodies == {BODY}
        assert glasscache_client.get("runs:/slow") == 1


def test_an_event_is_received_before_the_next_is_made(
    glasscache_client: Client, glasscache_server: Server
) -> None:
    with run_uvicorn(glasscache_server.address) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/events")
        response = connection.getresponse()
        assert response.read(9) == b"data: 0\n\n"
        send_request(port, "/release")
        assert response.read() == b"data: 1\n\n"
        connection.close()
        send_request(port, "/events")
        assert glasscache_client.get("runs:/events") == 2


def test_a_client_that_leaves_does_not_cut_the_stored_body(
    glasscache_client: Client, glasscache_server: Server
) -> None:
    with run_uvicorn(glasscache_server.address) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/held", headers={"host": "shop.example"})
        assert connection.getresponse().read(10) == BODY[:10]
        connection.close()
        send_request(port, "/release")
        assert send_request(port, "/held").body == BODY + BODY


def test_a_websocket_passes_through(glasscache_server: Server) -> None:
    websockets_client = pytest.importorskip("websockets.sync.client")
    with (
        run_uvicorn(glasscache_server.address) as port,
        websockets_client.connect(f"ws://127.0.0.1:{port}/chat") as chat,
    ):
        chat.send("lamps")
        assert chat.recv(timeout=20) == "lamps"


SMUGGLED = b"GET /evil HTTP/1.1\r\nHost: shop.example\r\n\r\n"
SMUGGLING_BODIES = {
    "content-length and chunked": b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED),
    "a length that is not one": b"Content-Length: 0, %d\r\n\r\n" % len(SMUGGLED),
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"Content-Length : %d\r\n\r\n" % len(SMUGGLED),
    "a folded line": b"X-A: 1\r\n Content-Length: %d\r\n\r\n" % len(SMUGGLED),
    "a bare line feed": b"X-A: 1\nContent-Length: %d\r\n\r\n" % len(SMUGGLED),
    "a body": b"Content-Length: %d\r\n\r\n" % len(SMUGGLED),
    "two hosts": b"Host: evil.example\r\n\r\n",
}
"""What follows the request line and Host of a GET for a page; each is followed by a request for /evil."""


@pytest.mark.parametrize("parser", PARSERS)
def test_a_smuggled_request_never_poisons_a_page(glasscache_server: Server, parser: str) -> None:
    with run_uvicorn(glasscache_server.address, parser) as port:
        for number, (framing, smuggling_body) in enumerate(SMUGGLING_BODIES.items()):
            path = f"/page-{number}"
            request_head = f"GET {path} HTTP/1.1\r\nHost: shop.example\r\n".encode()
            with socket.create_connection(("127.0.0.1", port), 20) as attacker:
                attacker.sendall(request_head + smuggling_body + SMUGGLED)
                attacker.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionError):
                    while attacker.recv(1 << 16):
                        pass
            for _ in range(2):
                response, body = send_request(port, path)
                assert (response.status, body) == (200, path.encode()), framing
