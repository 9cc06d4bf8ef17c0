"""Behind nutcracker, which closes on meta commands: detected once for each server, then classic text."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client, GlasscacheError, Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUTCRACKER = shutil.which("nutcracker") or shutil.which("nutcracker", path="/usr/sbin")

pytestmark = pytest.mark.skipif(NUTCRACKER is None, reason="nutcracker is not installed")


def free_port() -> int:
    with socket.socket() as reserved_socket:
        reserved_socket.bind(("127.0.0.1", 0))
        port: int = reserved_socket.getsockname()[1]
        return port


class NutcrackerProxy:
    """nutcracker (twemproxy) in front of these servers."""

    def __init__(self, addresses: list[str], folder: Path) -> None:
        self.port, self.stats_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        config_lines = [
            "pool:",
            f"  listen: {self.address}",
            "  hash: md5",
            "  distribution: ketama",
        ]
        config_lines += [
            "  timeout: 2000",
            "  servers:",
            *(f"    - {address}:1" for address in addresses),
        ]
        self._config_file = folder / "nutcracker.yml"
        self._config_file.write_text("\n".join(config_lines) + "\n")
        self.start()

    def start(self) -> None:
        """Start it and wait until it listens."""
        options = ["-c", str(self._config_file), "-s", str(self.stats_port), "-a", "127.0.0.1"]
        self._process = subprocess.Popen(
            [str(NUTCRACKER), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            time.sleep(0.01)
        self.stop()
        raise TimeoutError("nutcracker does not listen")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)

    def accepted_connection_count(self) -> int:
        """Return how many connections it has accepted since its start, those of `stats` among them."""
        with socket.create_connection(("127.0.0.1", self.stats_port), timeout=5) as connection:
            stats_text = b"".join(iter(lambda: connection.recv(65536), b""))
        return int(json.loads(stats_text)["total_connections"])


@pytest.fixture(params=[1, 3], ids=["alone", "before three"])
def proxy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NutcrackerProxy]:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(memory="64M")) for _ in range(request.param)]
        proxy = NutcrackerProxy([server.address for server in servers], tmp_path)
        yield proxy
        proxy.stop()


def test_every_method_that_a_proxy_has_works_through_it(proxy: NutcrackerProxy) -> None:
    with Client(proxy.address, timeout=5) as client:
        assert client.set("a", {"b": [1, 2]}, ttl=60)
        assert client.get("a") == {"b": [1, 2]}
        assert not client.add("a", 1)
        assert client.replace("a", "x")
        assert client.append("a", "y")
        assert client.get("a") == "xy"
        value, unique = client.gets("a") or (None, 0)
        assert value == "xy"
        assert client.cas("a", "z", unique)
        assert client.set("n", 1)
        assert client.incr("n", 4) == 5
        assert client.touch("n", 60)
        assert client.delete("a")
        assert client.get("a") is None
        values = {f"k{number}": number for number in range(300)}
        assert client.set_many(values, ttl=60) == {}
        assert client.get_many([*values, "none"]) == values
        client.delete_many(list(values))
        assert client.get_many(list(values)) == {}
        large_value = b"v" * 300_000
        assert client.set("large", large_value)
        assert client.get("large") == large_value


async def test_asyncio_falls_back_to_classic_commands(proxy: NutcrackerProxy) -> None:
    async with AsyncClient(proxy.address, timeout=5) as client:
        values = {f"k{number}": number for number in range(100)}
        assert await client.set_many(values, ttl=60) == {}
        values_read = await asyncio.gather(*(client.get(key) for key in values))
        assert values_read == list(values.values())
        assert await client.get_many(list(values)) == values
        await client.delete_many(list(values))
        assert await client.get_many(list(values)) == {}
        assert await client.incr("n", 1) is None


def test_meta_is_tried_once_for_each_server(proxy: NutcrackerProxy) -> None:
    with Client(proxy.address, timeout=5) as client:
        client.set("k", "first")
        connections_before = proxy.accepted_connection_count()
        for round_number in range(200):
            client.set("k", round_number)
            assert client.get("k") == round_number
        assert (
            proxy.accepted_connection_count() - connections_before <= 1
        )  # the one that requests the count


def test_a_proxy_that_comes_back_is_used_again(proxy: NutcrackerProxy) -> None:
    with Client(proxy.address, timeout=2) as client:
        assert client.set("k", 1)
        proxy.stop()
        outcomes: list[Any] = []
        for _ in range(3):
            with contextlib.suppress(GlasscacheError):
                outcomes.append(client.get("k"))
        assert outcomes == []
        proxy.start()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            with contextlib.suppress(GlasscacheError):
                assert client.get("k") == 1
                return
            time.sleep(0.01)
        pytest.fail("the proxy is never used again")
