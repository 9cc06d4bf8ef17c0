"""The real clients: how each stores and reads typed values, and the types it cannot distinguish or write."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wire import Case, fetch_items, kind_and_payload, python_value, store_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HERE = Path(__file__).parent


class ClientNotInstalled(Exception):
    """The client is not installed on this machine."""


@dataclass
class Client:
    """A real client: how it stores and reads, and which types it cannot distinguish or write."""

    name: str
    dialect: str
    compression: str
    write: Callable[[str, list[Case]], None]
    read: Callable[[str, list[str]], dict[str, tuple[str, str]]]
    skipped_kinds: frozenset[str] = frozenset()
    has_one_string_type: bool = False
    bool_reads_as_int: bool = False
    none_reads_as_false: bool = False
    float_digits: int = 17


def import_library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ClientNotInstalled(name) from error


def python_client(
    name: str, dialect: str, compression: str, connect: Callable[[str], Any], **quirks: Any
) -> Client:
    def write(server: str, tested_cases: list[Case]) -> None:
        client = connect(server)
        for key, kind, payload in tested_cases:
            client.set(key, python_value(kind, payload))

    def read(server: str, keys: list[str]) -> dict[str, tuple[str, str]]:
        client = connect(server)
        return {key: kind_and_payload(client.get(key)) for key in keys}

    return Client(name, dialect, compression, write, read, **quirks)


def script_client(
    name: str, dialect: str, compression: str, command: list[str], **quirks: Any
) -> Client:
    if shutil.which(command[0]) is None:
        raise ClientNotInstalled(command[0])

    def run_script(command_name: str, server: str, lines: Iterable[Case]) -> str:
        host, port = server.split(":")
        input_text = "".join("\t".join(line) + "\n" for line in lines)
        completed = subprocess.run(
            [*command, command_name, host, port, compression],
            input=input_text,
            capture_output=True,
            text=True,
            check=False,
        )
        if completed.returncode:
            raise RuntimeError(f"{name}: {completed.stderr[-2000:]}")
        return completed.stdout

    def read(server: str, keys: list[str]) -> dict[str, tuple[str, str]]:
        reply_lines = run_script("read", server, (Case(key, "", "") for key in keys)).splitlines()
        return {
            key: (kind, payload)
            for key, kind, payload in (line.split("\t") for line in reply_lines)
        }

    return Client(
        name,
        dialect,
        compression,
        lambda server, tested_cases: run_script("write", server, tested_cases) and None,
        read,
        **quirks,
    )


def pymemcache(compression: str) -> Client:
    base, serde = import_library("pymemcache.client.base"), import_library("pymemcache.serde")
    serialiser = serde.compressed_serde if compression == "zlib" else serde.pickle_serde
    return python_client(
        "pymemcache",
        "pymemcache",
        compression,
        lambda server: base.Client(server, serde=serialiser, default_noreply=False),
    )


def client_with_compression_length(client_class: Callable[..., Any], compression: str) -> type:
    """A client class whose `set` passes the length from which values are compressed."""

    class ClientWithCompressionLength:
        def __init__(self, server: str) -> None:
            self.client = client_class([server])

        def set(self, key: str, value: object) -> None:
            self.client.set(key, value, min_compress_len=1000 if compression == "zlib" else 0)

        def get(self, key: str) -> object:
            return self.client.get(key)

    return ClientWithCompressionLength


def pylibmc(compression: str) -> Client:
    connect = client_with_compression_length(import_library("pylibmc").Client, compression)
    return python_client("pylibmc", "pylibmc", compression, connect, bool_reads_as_int=True)


def python_memcached(compression: str) -> Client:
    connect = client_with_compression_length(import_library("memcache").Client, compression)
    return python_client("python-memcached", "python-memcached", compression, connect)


def bmemcached(compression: str) -> Client:
    client_class = import_library("bmemcached").Client

    def connect(server: str) -> Any:
        return client_class((server,), compression=zlib if compression == "zlib" else None)

    return python_client("python-binary-memcached", "bmemcached", compression, connect)


def meta_memcache(compression: str) -> Client:
    """meta-memcache's serialisers, with our own text commands around them."""
    meta, serializer_module = (
        import_library("meta_memcache"),
        import_library("meta_memcache.serializer"),
    )
    if compression == "zstd":
        serialiser = serializer_module.ZstdSerializer(
            import_library("meta_memcache.compression.zstd_manager").ThreadLocalZstdManager()
        )
    else:
        serialiser = serializer_module.MixedSerializer()

    def write(server: str, tested_cases: list[Case]) -> None:
        serialised = {
            key: serialiser.serialize(meta.Key(key), python_value(kind, payload))
            for key, kind, payload in tested_cases
        }
        store_items(
            server,
            {key: (value.encoding_id, bytes(value.data)) for key, value in serialised.items()},
        )

    def read(server: str, keys: list[str]) -> dict[str, tuple[str, str]]:
        return {
            key: kind_and_payload(serialiser.unserialize(body, flags))
            for key, (flags, body) in fetch_items(server, keys).items()
        }

    return Client("meta-memcache", "bmemcached", compression, write, read)


def php_memcached(compression: str) -> Client:
    command = ["php", str(HERE / "phpmemcached.php")]
    return script_client(
        "php-memcached", "php-memcached", compression, command, has_one_string_type=True
    )


def pecl_memcache(compression: str) -> Client:
    command = ["php", str(HERE / "pecl.php")]
    # It writes 14 digits of a float, and reads its own null as false.
    quirks = {"has_one_string_type": True, "none_reads_as_false": True, "float_digits": 14}
    return script_client("pecl-memcache", "pecl-memcache", compression, command, **quirks)


def dalli(compression: str) -> Client:
    return script_client("Dalli", "dalli", compression, ["ruby", str(HERE / "dalli.rb")])


def spymemcached(compression: str, build_folder: Path) -> Client:
    if not (build_folder / "Spy.class").exists():
        command = [
            "mvn",
            "-q",
            "dependency:copy",
            "-Dartifact=net.spy:spymemcached:2.12.3",
            f"-DoutputDirectory={build_folder}",
        ]
        if (
            shutil.which("mvn") is None
            or subprocess.run(command, capture_output=True, check=False).returncode
        ):
            raise ClientNotInstalled("spymemcached by Maven")
        jar = build_folder / "spymemcached-2.12.3.jar"
        subprocess.run(
            ["javac", "-cp", str(jar), "-d", str(build_folder), str(HERE / "Spy.java")], check=True
        )
    class_path = f"{build_folder}:{build_folder / 'spymemcached-2.12.3.jar'}"
    return script_client(
        "spymemcached",
        "spymemcached",
        compression,
        ["java", "-cp", class_path, "Spy"],
        skipped_kinds=frozenset({"none"}),
    )


def clients_with_compressions(build_folder: Path) -> list[tuple[str, Callable[[], Client]]]:
    """Each client, plain and with each compression that it can write."""
    return [
        *(
            ("pymemcache", lambda compression=compression: pymemcache(compression))
            for compression in ("-", "zlib")
        ),
        *(
            ("pylibmc", lambda compression=compression: pylibmc(compression))
            for compression in ("-", "zlib")
        ),
        *(
            ("python-memcached", lambda compression=compression: python_memcached(compression))
            for compression in ("-", "zlib")
        ),
        *(
            ("python-binary-memcached", lambda compression=compression: bmemcached(compression))
            for compression in ("-", "zlib")
        ),
        *(
            ("meta-memcache", lambda compression=compression: meta_memcache(compression))
            for compression in ("zlib", "zstd")
        ),
        *(
            ("php-memcached", lambda compression=compression: php_memcached(compression))
            for compression in ("-", "zlib", "fastlz")
        ),
        *(
            ("pecl-memcache", lambda compression=compression: pecl_memcache(compression))
            for compression in ("-", "zlib")
        ),
        *(
            ("Dalli", lambda compression=compression: dalli(compression))
            for compression in ("-", "zlib")
        ),
        *(
            (
                "spymemcached",
                lambda compression=compression: spymemcached(compression, build_folder),
            )
            for compression in ("-", "gzip")
        ),
    ]
