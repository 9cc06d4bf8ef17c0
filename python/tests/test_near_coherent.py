"""A client with `coherent=True`: changes that others make are followed by the server's `watch`."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client
from glasscache.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    SaveStrategy = Callable[[str], str]


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait as long as a busy machine may need."""
    pause, deadline = threading.Event(), time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        pause.wait(0.002)


def read_until_kept(client: Client, key: str) -> None:
    """Read a key until the process serves it."""
    near_hits_before = client.near_stats()["near_hits"]
    wait_until(
        lambda: client.get(key) is not None and client.near_stats()["near_hits"] > near_hits_before
    )


def test_a_coherent_client_sees_what_others_change(
    server: Any, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    strategy_file = save_strategy("strategy s3fifo:10")
    client = Client(
        server.address, namespace=namespace, strategy=strategy_file, near_ttl=None, coherent=True
    )
    changes: list[tuple[Callable[[], object], object]] = [
        (lambda: other_client.set("k", 6), 6),
        (lambda: other_client.incr("k"), 5),
        (lambda: other_client.delete("k"), None),
        (lambda: other_client.set("k", 7), 7),
        (other_client.clear, None),
    ]
    for make_change, expected_value in changes:
        other_client.set("k", 4)
        wait_until(lambda: client.get("k") == 4)
        read_until_kept(client, "k")
        make_change()
        wait_until(lambda expected_value=expected_value: client.get("k") == expected_value)
    assert client.near_stats()["changed_by_others"] >= 4
    client.close()


async def test_a_coherent_asyncio_client_sees_what_others_change(
    server: Any, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    client = AsyncClient(
        server.address,
        namespace=namespace,
        strategy=save_strategy("strategy lru:10"),
        near_ttl=None,
        coherent=True,
    )
    other_client.set("k", "old")
    for _ in range(30_000):
        assert await client.get("k") == "old"
        if client.near_stats()["near_hits"]:
            break
        await asyncio.sleep(0.002)
    other_client.set("k", "new")
    for _ in range(30_000):
        if await client.get("k") == "new":
            break
        await asyncio.sleep(0.002)
    assert await client.get("k") == "new"
    assert client.near_stats()["changed_by_others"] >= 1
    await client.close()


def test_keys_in_base64_are_coherent_too(
    server: Any, save_strategy: SaveStrategy, namespace: str
) -> None:
    other_client = Client(server.address, namespace=namespace, keys="base64")
    client = Client(
        server.address,
        namespace=namespace,
        keys="base64",
        strategy=save_strategy("strategy lru:10"),
        near_ttl=None,
        coherent=True,
    )
    other_client.set("a key", 1)
    read_until_kept(client, "a key")
    other_client.set("a key", 2)
    wait_until(lambda: client.get("a key") == 2)
    client.close()


CHILD_PROGRAM = """
import os, sys, time
from glasscache import Client
address, namespace, strategy = sys.argv[1:]
other = Client(address, namespace=namespace)
client = Client(address, namespace=namespace, strategy=strategy, near_ttl=None, coherent=True)
def until(is_so):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.002)
def hits():
    return client.near_stats()["near_hits"]
def follows(old, new):
    other.set("k", old)
    until(lambda: client.get("k") == old)
    before = hits()
    until(lambda: client.get("k") and hits() > before)
    other.set("k", new)
    until(lambda: client.get("k") == new)
for is_read_before in (False, True):
    if is_read_before:
        follows("a", "b")
    child = os.fork()
    if child == 0:
        follows("c", "d")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
follows("e", "f")
print("followed")
"""


def test_a_child_process_watches_for_itself(
    server: Any, save_strategy: SaveStrategy, namespace: str
) -> None:
    strategy_file = save_strategy("strategy lru:10")
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        CHILD_PROGRAM,
        server.address,
        namespace,
        strategy_file,
    ]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert completed.stdout.split() == ["followed"], completed.stderr


def test_a_coherent_asyncio_client_takes_an_ssl_context_that_verifies(
    save_strategy: SaveStrategy,
) -> None:
    import ssl

    strategy_file = save_strategy("strategy lru:1")
    context = ssl.create_default_context()
    assert AsyncClient(tls=context, strategy=strategy_file, coherent=True).near_stats() is not None
    context.check_hostname = False
    with pytest.raises(BadSetting, match="does not verify names"):
        AsyncClient(tls=context, strategy=strategy_file, coherent=True)


@pytest.fixture
def memcached_address(start_memcached: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    """Yield the address of a memcached of its own."""
    with start_memcached() as address:
        yield address


def does_report_deletes(address: str) -> bool:
    """Return whether a server knows what memcached 1.6.20 brought."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"watch mutations deletions\r\n")
        return connection.recv(100).startswith(b"OK")


def test_a_memcached_that_reports_less_is_named_and_bounded_by_near_ttl(
    save_strategy: SaveStrategy, memcached_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    other_client = Client(memcached_address, timeout=5)
    client = Client(
        memcached_address,
        timeout=5,
        strategy=save_strategy("strategy lru:10"),
        near_ttl=0.3,
        coherent=True,
    )
    other_client.set("k", 7)
    with caplog.at_level(logging.WARNING, logger="glasscache"):
        read_until_kept(client, "k")
        for make_change, expected_value in (
            (lambda: other_client.set("k", 1), 1),
            (lambda: other_client.incr("k"), 2),
            (lambda: other_client.delete("k"), None),
        ):
            make_change()
            wait_until(lambda expected_value=expected_value: client.get("k") == expected_value)
        wait_until(lambda: client.get("other") is None and "coherent:" in caplog.text)
    assert "near_ttl, 0.3 s" in caplog.text
    client.close()


def test_a_memcached_from_1_6_20_reports_stores_and_deletes_of_others(
    save_strategy: SaveStrategy, memcached_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    if not does_report_deletes(memcached_address):
        pytest.skip("this memcached does not report deletes: MEMCACHED=path of 1.6.20 or newer")
    other_client = Client(memcached_address, timeout=5)
    # Without a report a value would stay for an hour.
    client = Client(
        memcached_address,
        timeout=5,
        strategy=save_strategy("strategy lru:10"),
        near_ttl=3600,
        coherent=True,
    )
    changes: list[tuple[Callable[[], object], object]] = [
        (lambda: other_client.set("k", "set"), "set"),
        (lambda: other_client.replace("k", "replaced"), "replaced"),
        (lambda: other_client.set_many({"k": "many", "l": 1}), "many"),
        (lambda: (other_client.set("k", "quiet", noreply=True), other_client.get("k")), "quiet"),
        (lambda: other_client.delete("k"), None),
        (lambda: other_client.add("k", "added"), "added"),
    ]
    with caplog.at_level(logging.WARNING, logger="glasscache"):
        for make_change, expected_value in changes:
            # The first read begins the watch, and nothing is kept before it.
            if expected_value != "added":
                other_client.set("k", "kept")
                wait_until(lambda: client.get("k") == "kept")
                read_until_kept(client, "k")
            make_change()
            wait_until(lambda expected_value=expected_value: client.get("k") == expected_value)
    assert client.near_stats()["changed_by_others"] >= len(changes) - 1
    (warning,) = [
        record.getMessage() for record in caplog.records if "coherent:" in record.getMessage()
    ]
    assert "after incr, touch or flush_all" in warning
    assert "near_ttl, 3600 s" in warning
    client.close()
