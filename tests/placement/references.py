"""The real libraries as judges: each says which server of a list gets a key.

Most are asked offline; a client that cannot say stores the keys on real servers, and each server is
asked what it holds. `jump` has no client library to ask: its judge is the paper's loop over xxh3,
written down here.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

ReferencePlacement = Callable[[Sequence[str], list[str]], list[int]]


class Missing(Exception):
    """The judge is not on this machine."""


def run(command: Sequence[str], keys: list[str], **options: object) -> list[int]:
    text = "\n".join(keys) + "\n"
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.decode()[-2000:]}")
    return [int(line) for line in done.stdout.split()]


def ours(placement: str) -> ReferencePlacement:
    binary = ROOT / "target" / "release" / "examples" / "server_of"
    return lambda servers, keys: run([str(binary), placement, *servers], keys)


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise Missing(f"no {program}")
    return found


def libmemcached(rule: str, build: Path) -> ReferencePlacement:
    binary = build / "libmemcached"
    if not binary.exists():
        source = str(HERE / "libmemcached.c")
        done = subprocess.run(
            [need("cc"), source, "-o", str(binary), "-lmemcached"], capture_output=True, check=False
        )
        if done.returncode:
            raise Missing("libmemcached-dev")
    return lambda servers, keys: run([str(binary), rule, *servers], keys)


def php(rule: str) -> ReferencePlacement:
    if (
        "memcached"
        not in subprocess.run([need("php"), "-m"], capture_output=True, check=True)
        .stdout.decode()
        .split()
    ):
        raise Missing("php-memcached")
    return lambda servers, keys: run(["php", str(HERE / "phpmemcached.php"), rule, *servers], keys)


def dalli() -> ReferencePlacement:
    if subprocess.run(
        [need("ruby"), "-e", "require 'dalli'"], capture_output=True, check=False
    ).returncode:
        raise Missing("ruby-dalli")
    return lambda servers, keys: run(["ruby", str(HERE / "dalli.rb"), *servers], keys)


def gomemcache(build: Path) -> ReferencePlacement:
    binary = build / "gomemcache"
    if not binary.exists():
        command = [need("go"), "build", "-o", str(binary), "."]
        done = subprocess.run(command, cwd=HERE / "gomemcache", capture_output=True, check=False)
        if done.returncode:
            raise Missing(done.stderr.decode()[-200:])
    repeat = lambda servers: [a for a, w in map(split, servers) for _ in range(w)]  # noqa: E731

    def server_indices(servers: Sequence[str], keys: list[str]) -> list[int]:
        return run([str(binary), *repeat(servers)], keys)

    return server_indices


def spymemcached(rule: str, build: Path) -> ReferencePlacement:
    if not (build / "Spy.class").exists():
        artifact = "-Dartifact=net.spy:spymemcached:2.12.3"
        command = [need("mvn"), "-q", "dependency:copy", artifact, f"-DoutputDirectory={build}"]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            raise Missing("spymemcached by Maven")
        jar = str(build / "spymemcached-2.12.3.jar")
        subprocess.run(
            [need("javac"), "-cp", jar, "-d", str(build), str(HERE / "Spy.java")], check=True
        )
    path = f"{build}:{build / 'spymemcached-2.12.3.jar'}"
    return lambda servers, keys: run(["java", "-cp", path, "Spy", rule, *servers], keys)


def pymemcache() -> ReferencePlacement:
    try:
        from pymemcache.client.rendezvous import RendezvousHash
    except ImportError as error:
        raise Missing("pymemcache") from error

    def server_indices(servers: Sequence[str], keys: list[str]) -> list[int]:
        ring = RendezvousHash(list(servers))
        index = {server: i for i, server in enumerate(servers)}
        return [index[ring.get_node(key)] for key in keys]

    return server_indices


def python_memcached() -> ReferencePlacement:
    try:
        import memcache
    except ImportError as error:
        raise Missing("python-memcached") from error

    def server_indices(servers: Sequence[str], keys: list[str]) -> list[int]:
        client = memcache.Client([split(server) for server in servers])
        index = {id(server): i for i, server in enumerate(client.servers)}

        def pick(key: str) -> object:
            return client.buckets[memcache.cmemcache_hash(key.encode()) % len(client.buckets)]

        return [index[id(pick(key))] for key in keys]

    return server_indices


def jump_of_the_paper() -> ReferencePlacement:
    try:
        import xxhash
    except ImportError as error:
        raise Missing("xxhash") from error

    def bucket(hash_: int, count: int) -> int:
        b, j = -1, 0
        while j < count:
            b = j
            hash_ = (hash_ * 2862933555777941757 + 1) % 2**64
            j = int((b + 1) * (float(1 << 31) / float((hash_ >> 33) + 1)))
        return b

    def server_indices(servers: Sequence[str], keys: list[str]) -> list[int]:
        repeated = [i for i, (_, weight) in enumerate(map(split, servers)) for _ in range(weight)]
        return [
            repeated[bucket(xxhash.xxh3_64_intdigest(key.encode()), len(repeated))] for key in keys
        ]

    return server_indices


def stored_by(store: Callable[[Sequence[str], list[str]], None]) -> ReferencePlacement:
    """A judge that can only be asked by storing: who holds which key afterwards."""

    def server_indices(servers: Sequence[str], keys: list[str]) -> list[int]:
        addresses = [split(server)[0] for server in servers]
        for address in addresses:
            request(address, b"flush_all\r\n", b"OK\r\n")
        store(servers, keys)
        where = {}
        for i, address in enumerate(addresses):
            where.update(dict.fromkeys(holds(address, keys), i))
        return [where.get(key.encode(), -1) for key in keys]

    return server_indices


def pecl() -> ReferencePlacement:
    if (
        "memcache"
        not in subprocess.run([need("php"), "-m"], capture_output=True, check=True)
        .stdout.decode()
        .split()
    ):
        raise Missing("php-memcache")

    def store(servers: Sequence[str], keys: list[str]) -> None:
        run(
            ["php", "-d", "memcache.hash_strategy=standard", str(HERE / "pecl.php"), *servers], keys
        )

    return stored_by(store)


def pylibmc(behaviors: dict[str, object]) -> ReferencePlacement:
    try:
        import pylibmc as library
    except ImportError as error:
        raise Missing("pylibmc") from error

    def store(servers: Sequence[str], keys: list[str]) -> None:
        spelled = [
            address if weight == 1 else f"{address}:{weight}"
            for address, weight in map(split, servers)
        ]
        client = library.Client(spelled, behaviors=behaviors)
        for key in keys:
            client.set(key, b"1")

    return stored_by(store)


def split(server: str) -> tuple[str, int]:
    address, _, weight = server.partition("*")
    return address, int(weight or 1)


def request(address: str, request: bytes, end: bytes) -> bytes:
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(request)
        reply = b""
        while not reply.endswith(end):
            piece = peer.recv(1 << 20)
            if not piece:
                raise RuntimeError(f"{address} closed the connection")
            reply += piece
    return reply


def holds(address: str, keys: list[str]) -> Iterator[bytes]:
    for start in range(0, len(keys), 200):
        batch = b" ".join(key.encode() for key in keys[start : start + 200])
        reply = request(address, b"get " + batch + b"\r\n", b"END\r\n")
        yield from (line.split()[1] for line in reply.split(b"\r\n") if line.startswith(b"VALUE "))
