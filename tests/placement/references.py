"""The placements of the real libraries: each returns the server of a list for a key.

Most compute it offline; a client that cannot stores the keys on real servers, and each server is then
read. `jump` has no client library: its reference is the loop of the paper over xxh3,
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


class ReferenceNotInstalled(Exception):
    """The library is not installed on this machine."""


def run_with_keys(command: Sequence[str], keys: list[str], **options: object) -> list[int]:
    input_text = "\n".join(keys) + "\n"
    completed = subprocess.run(
        command, input=input_text.encode(), capture_output=True, check=False, **options
    )  # type: ignore[call-overload]
    if completed.returncode:
        raise RuntimeError(f"{command[0]}: {completed.stderr.decode()[-2000:]}")
    return [int(line) for line in completed.stdout.split()]


def our_placement(placement: str) -> ReferencePlacement:
    binary = ROOT / "target" / "release" / "examples" / "server_of"
    return lambda servers, keys: run_with_keys([str(binary), placement, *servers], keys)


def require_program(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise ReferenceNotInstalled(f"no {program}")
    return path


def libmemcached(rule: str, build_folder: Path) -> ReferencePlacement:
    binary = build_folder / "libmemcached"
    if not binary.exists():
        source = str(HERE / "libmemcached.c")
        completed = subprocess.run(
            [require_program("cc"), source, "-o", str(binary), "-lmemcached"],
            capture_output=True,
            check=False,
        )
        if completed.returncode:
            raise ReferenceNotInstalled("libmemcached-dev")
    return lambda servers, keys: run_with_keys([str(binary), rule, *servers], keys)


def php(rule: str) -> ReferencePlacement:
    if (
        "memcached"
        not in subprocess.run([require_program("php"), "-m"], capture_output=True, check=True)
        .stdout.decode()
        .split()
    ):
        raise ReferenceNotInstalled("php-memcached")
    return lambda servers, keys: run_with_keys(
        ["php", str(HERE / "phpmemcached.php"), rule, *servers], keys
    )


def dalli() -> ReferencePlacement:
    if subprocess.run(
        [require_program("ruby"), "-e", "require 'dalli'"], capture_output=True, check=False
    ).returncode:
        raise ReferenceNotInstalled("ruby-dalli")
    return lambda servers, keys: run_with_keys(["ruby", str(HERE / "dalli.rb"), *servers], keys)


def gomemcache(build_folder: Path) -> ReferencePlacement:
    binary = build_folder / "gomemcache"
    if not binary.exists():
        command = [require_program("go"), "build", "-o", str(binary), "."]
        completed = subprocess.run(
            command, cwd=HERE / "gomemcache", capture_output=True, check=False
        )
        if completed.returncode:
            raise ReferenceNotInstalled(completed.stderr.decode()[-200:])

    def server_indices(servers: Sequence[str], keys: list[str]) -> list[int]:
        repeated_by_weight = [
            address for address, weight in map(address_and_weight, servers) for _ in range(weight)
        ]
        return run_with_keys([str(binary), *repeated_by_weight], keys)

    return server_indices


def spymemcached(rule: str, build_folder: Path) -> ReferencePlacement:
    if not (build_folder / "Spy.class").exists():
        artifact = "-Dartifact=net.spy:spymemcached:2.12.3"
        command = [
            require_program("mvn"),
            "-q",
            "dependency:copy",
            artifact,
            f"-DoutputDirectory={build_folder}",
        ]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            raise ReferenceNotInstalled("spymemcached by Maven")
        jar = str(build_folder / "spymemcached-2.12.3.jar")
        subprocess.run(
            [require_program("javac"), "-cp", jar, "-d", str(build_folder), str(HERE / "Spy.java")],
            check=True,
        )
    class_path = f"{build_folder}:{build_folder / 'spymemcached-2.12.3.jar'}"
    return lambda servers, keys: run_with_keys(
        ["java", "-cp", class_path, "Spy", rule, *servers], keys
    )


def pymemcache() -> ReferencePlacement:
    try:
        from pymemcache.client.rendezvous import RendezvousHash
    except ImportError as error:
        raise ReferenceNotInstalled("pymemcache") from error

    def server_indices(servers: Sequence[str], keys: list[str]) -> list[int]:
        ring = RendezvousHash(list(servers))
        index_by_server = {server: index for index, server in enumerate(servers)}
        return [index_by_server[ring.get_node(key)] for key in keys]

    return server_indices


def python_memcached() -> ReferencePlacement:
    try:
        import memcache
    except ImportError as error:
        raise ReferenceNotInstalled("python-memcached") from error

    def server_indices(servers: Sequence[str], keys: list[str]) -> list[int]:
        client = memcache.Client([address_and_weight(server) for server in servers])
        index_by_server = {id(server): index for index, server in enumerate(client.servers)}

        def bucket_of(key: str) -> object:
            return client.buckets[memcache.cmemcache_hash(key.encode()) % len(client.buckets)]

        return [index_by_server[id(bucket_of(key))] for key in keys]

    return server_indices


def jump_hash_of_the_paper() -> ReferencePlacement:
    try:
        import xxhash
    except ImportError as error:
        raise ReferenceNotInstalled("xxhash") from error

    def jump_bucket(key_hash: int, bucket_count: int) -> int:
        candidate, next_candidate = -1, 0
        while next_candidate < bucket_count:
            candidate = next_candidate
            key_hash = (key_hash * 2862933555777941757 + 1) % 2**64
            next_candidate = int((candidate + 1) * (float(1 << 31) / float((key_hash >> 33) + 1)))
        return candidate

    def server_indices(servers: Sequence[str], keys: list[str]) -> list[int]:
        repeated_indices = [
            index
            for index, (_, weight) in enumerate(map(address_and_weight, servers))
            for _ in range(weight)
        ]
        return [
            repeated_indices[
                jump_bucket(xxhash.xxh3_64_intdigest(key.encode()), len(repeated_indices))
            ]
            for key in keys
        ]

    return server_indices


def placement_by_storing(
    store_keys: Callable[[Sequence[str], list[str]], None],
) -> ReferencePlacement:
    """A reference that stores the keys on real servers, from which they are then read."""

    def server_indices(servers: Sequence[str], keys: list[str]) -> list[int]:
        addresses = [address_and_weight(server)[0] for server in servers]
        for address in addresses:
            send_request(address, b"flush_all\r\n", b"OK\r\n")
        store_keys(servers, keys)
        server_by_key = {}
        for index, address in enumerate(addresses):
            server_by_key.update(dict.fromkeys(stored_keys(address, keys), index))
        return [server_by_key.get(key.encode(), -1) for key in keys]

    return server_indices


def pecl() -> ReferencePlacement:
    if (
        "memcache"
        not in subprocess.run([require_program("php"), "-m"], capture_output=True, check=True)
        .stdout.decode()
        .split()
    ):
        raise ReferenceNotInstalled("php-memcache")

    def store_keys(servers: Sequence[str], keys: list[str]) -> None:
        run_with_keys(
            ["php", "-d", "memcache.hash_strategy=standard", str(HERE / "pecl.php"), *servers], keys
        )

    return placement_by_storing(store_keys)


def pylibmc(behaviors: dict[str, object]) -> ReferencePlacement:
    try:
        import pylibmc as library
    except ImportError as error:
        raise ReferenceNotInstalled("pylibmc") from error

    def store_keys(servers: Sequence[str], keys: list[str]) -> None:
        addresses = [
            address if weight == 1 else f"{address}:{weight}"
            for address, weight in map(address_and_weight, servers)
        ]
        client = library.Client(addresses, behaviors=behaviors)
        for key in keys:
            client.set(key, b"1")

    return placement_by_storing(store_keys)


def address_and_weight(server: str) -> tuple[str, int]:
    address, _, weight = server.partition("*")
    return address, int(weight or 1)


def send_request(address: str, request_bytes: bytes, reply_end: bytes) -> bytes:
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(request_bytes)
        reply = b""
        while not reply.endswith(reply_end):
            chunk = connection.recv(1 << 20)
            if not chunk:
                raise RuntimeError(f"{address} closed the connection")
            reply += chunk
    return reply


def stored_keys(address: str, keys: list[str]) -> Iterator[bytes]:
    for start in range(0, len(keys), 200):
        requested_keys = b" ".join(key.encode() for key in keys[start : start + 200])
        reply = send_request(address, b"get " + requested_keys + b"\r\n", b"END\r\n")
        yield from (line.split()[1] for line in reply.split(b"\r\n") if line.startswith(b"VALUE "))
