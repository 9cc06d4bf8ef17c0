"""Both clients with TLS: encrypted, verified by authority and name, with client certificates."""

from __future__ import annotations

import asyncio
import gc
import shutil
import ssl
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pymemcache
import pytest
from certificates import Authority
from glasscache import (
    TLS,
    AsyncClient,
    BadSetting,
    Client,
    DeadlineExceeded,
    ServerUnavailable,
    discovery,
)
from glasscache.server import Server
from scripted_server import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# A handshake takes two round trips and a thread. The machine may be busy.
TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def authority() -> Authority:
    """Make an authority."""
    return Authority()


@pytest.fixture(scope="module")
def port(authority: Authority) -> Iterator[str]:
    """Start a server with TLS; the result is its port."""
    with Server(arguments=authority.sign("server").options("ssl_session_cache")) as server:
        yield server.address.rsplit(":", 1)[1]


@pytest.fixture(scope="module")
def port_requiring_certificates(authority: Authority) -> Iterator[str]:
    """Start a server that requires client certificates; the result is its port."""
    options = authority.sign("guarded").options(
        "ssl_verify_mode=2", f"ssl_ca_cert={authority.file}"
    )
    with Server(arguments=options) as server:
        yield server.address.rsplit(":", 1)[1]


def test_values_of_any_size_pass_encrypted(authority: Authority, port: str) -> None:
    with Client(f"localhost:{port}", tls=TLS(authority.file), timeout=TIMEOUT_S) as client:
        for size in (0, 1, 16_384, 16_385, 700_000):
            value = bytes(range(256)) * (size // 256) + bytes(size % 256)
            assert client.set("key", value)
            assert client.get("key") == value
        client.set_many({f"key-{number}": number for number in range(3000)}, noreply=True)
        keys = [f"key-{number}" for number in range(3000)]
        assert client.get_many(keys) == {key: number for number, key in enumerate(keys)}


def test_values_of_any_size_pass_encrypted_by_asyncio(authority: Authority, port: str) -> None:
    async def read_with_async_client(tls: Any) -> None:
        async with AsyncClient(f"localhost:{port}", tls=tls, timeout=TIMEOUT_S) as client:
            for size in (0, 1, 16_384, 700_000):
                assert await client.set("other", bytes(size))
                assert await client.get("other") == bytes(size)
            await asyncio.gather(*(client.set(f"a-{number}", number) for number in range(300)))
            values = await client.get_many([f"a-{number}" for number in range(300)])
            assert len(values) == 300

    asyncio.run(read_with_async_client(TLS(authority.file)))
    asyncio.run(read_with_async_client(authority.context()))


def test_the_blocking_client_takes_the_authorities_of_a_context(
    authority: Authority, port: str
) -> None:
    with Client(f"localhost:{port}", tls=authority.context(), timeout=TIMEOUT_S) as client:
        assert client.set("by-context", 1)
        assert client.get("by-context") == 1
    for context in (Authority("foreign").context(), ssl.create_default_context()):
        with (
            Client(f"localhost:{port}", tls=context, timeout=TIMEOUT_S) as client,
            pytest.raises(ServerUnavailable, match="TLS failed"),
        ):
            client.get("by-context")


def test_a_server_is_verified_by_its_authority_and_its_name(
    authority: Authority, port: str
) -> None:
    unknown_authority = Authority("foreign")
    refused_connections = [
        (f"localhost:{port}", TLS(unknown_authority.file)),
        (f"localhost:{port}", TLS(authority.file, server_name="cache.example")),
        # No file: the authorities of the system, which do not know ours.
        (f"localhost:{port}", True),
    ]
    for address, tls in refused_connections:
        with (
            Client(address, tls=tls, timeout=TIMEOUT_S) as client,
            pytest.raises(ServerUnavailable, match="TLS failed: invalid peer certificate"),
        ):
            client.get("key")

        async def read_with_async_client(address: str = address, tls: Any = tls) -> None:
            async with AsyncClient(address, tls=tls, timeout=TIMEOUT_S) as client:
                with pytest.raises(ServerUnavailable, match="certificate verify failed"):
                    await client.get("key")

        asyncio.run(read_with_async_client())
    # An address is a name too, if the certificate has it, and one may be given.
    for address, server_name in [(f"127.0.0.1:{port}", None), (f"127.0.0.1:{port}", "localhost")]:
        with Client(
            address, tls=TLS(authority.file, server_name=server_name), timeout=TIMEOUT_S
        ) as client:
            assert client.get("none") is None


def test_a_client_presents_its_certificate(
    authority: Authority, port_requiring_certificates: str
) -> None:
    client_identity = authority.sign("client")
    client_tls = TLS(authority.file, client_identity.chain, client_identity.key)
    with Client(
        f"localhost:{port_requiring_certificates}", tls=client_tls, timeout=TIMEOUT_S
    ) as client:
        assert client.set("key", 1)

    async def read_with_async_client() -> None:
        async with AsyncClient(
            f"localhost:{port_requiring_certificates}", tls=client_tls, timeout=TIMEOUT_S
        ) as client:
            assert await client.get("key") == 1
        async with AsyncClient(
            f"localhost:{port_requiring_certificates}", tls=TLS(authority.file), timeout=TIMEOUT_S
        ) as client:
            with pytest.raises(ServerUnavailable):
                await client.get("key")

    asyncio.run(read_with_async_client())


def test_pymemcache_and_this_client_read_what_the_other_wrote(
    authority: Authority, port: str
) -> None:
    pymemcache_client = pymemcache.Client(
        ("localhost", int(port)),
        tls_context=authority.context(),
        timeout=TIMEOUT_S,
        connect_timeout=TIMEOUT_S,
    )
    with Client(
        f"localhost:{port}", tls=TLS(authority.file), dialect="pymemcache", timeout=TIMEOUT_S
    ) as client:
        for value in (b"short", bytes(100_000)):
            assert pymemcache_client.set("theirs", value, noreply=False)
            assert client.get("theirs") == value
            assert client.set("ours", value)
            assert pymemcache_client.get("ours") == value
    pymemcache_client.close()


async def test_the_handshake_of_an_asyncio_client_counts_towards_the_deadline(
    authority: Authority,
) -> None:
    with ScriptedServer() as silent_server:
        address = f"localhost:{silent_server.port}"
        async with AsyncClient(address, tls=TLS(authority.file), timeout=0.1) as client:
            with pytest.raises(DeadlineExceeded):
                await client.get("key")


def test_a_child_after_a_fork_has_sessions_of_its_own(authority: Authority, port: str) -> None:
    program = f"""
import os
from glasscache import TLS, Client
client = Client("localhost:{port}", tls=TLS({str(authority.file)!r}), timeout={TIMEOUT_S})
client.set("forked", 0)
child = os.fork()
for number in range(100):
    assert client.get("forked") == 0
    assert client.set(f"forked-{{child}}", number) and client.get(f"forked-{{child}}") == number
if child:
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_server_that_restarts_is_found_again_by_the_probe(authority: Authority) -> None:
    options = authority.sign("restarted").options()
    server = Server(arguments=options)
    restarted_port = int(server.address.rsplit(":", 1)[1])
    with Client(
        f"localhost:{restarted_port}", tls=TLS(authority.file), timeout=TIMEOUT_S
    ) as client:
        assert client.set("key", 1)
        server.stop()
        for _ in range(4):
            with pytest.raises(ServerUnavailable):
                client.get("key")
        with Server(port=restarted_port, arguments=options):
            deadline = time.monotonic() + TIMEOUT_S
            while time.monotonic() < deadline:
                try:
                    assert client.get("key") is None
                except ServerUnavailable:
                    continue
                return
    pytest.fail("the server was not found again")


def test_unusable_tls_settings_are_refused(authority: Authority, tmp_path: Path) -> None:
    empty_file = tmp_path / "empty.pem"
    empty_file.write_text("")
    unusable_settings: list[Any] = [
        TLS(empty_file),
        TLS(tmp_path / "none"),
        TLS(authority.file, key=empty_file),
        "yes",
    ]
    for tls in unusable_settings:
        for client_class in (Client, AsyncClient):
            with pytest.raises(BadSetting, match="tls: "):
                client_class("localhost:1", tls=tls)
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    with pytest.raises(BadSetting, match="does not verify names"):
        Client("localhost:1", tls=unverified)
    for client_class in (Client, AsyncClient):
        with pytest.raises(BadSetting, match="a unix socket has no TLS"):
            client_class("/run/cache.sock", tls=TLS(authority.file))


def test_a_configuration_endpoint_is_read_encrypted_and_gives_names(
    authority: Authority, tmp_path: Path
) -> None:
    cluster_file = tmp_path / "cluster"
    cluster_file.write_text("12\nlocalhost|127.0.0.1|11299\n")
    options = [*authority.sign("endpoint").options(), "--cluster-file", str(cluster_file)]
    with Server(arguments=options) as server:
        endpoint = f"localhost:{server.address.rsplit(':', 1)[1]}"
        for tls in (TLS(authority.file), authority.context()):
            assert discovery.elasticache(endpoint, tls=tls, timeout=TIMEOUT_S)() == [
                "localhost:11299"
            ]
        with pytest.raises(OSError, match="certificate verify failed"):
            discovery.elasticache(endpoint, tls=True, timeout=TIMEOUT_S)()
    with pytest.raises(BadSetting, match="tls: True, TLS"):
        discovery.elasticache(endpoint, tls="yes")


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a handshake that fails as its loop ends
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("is_authority", [True, False])
@pytest.mark.parametrize(
    ("names", "host", "is_accepted"),
    [
        ("subjectAltName=DNS:localhost,IP:127.0.0.1", "localhost", True),
        ("subjectAltName=DNS:localhost,IP:127.0.0.1", "127.0.0.1", True),
        ("subjectAltName=DNS:other.example", "localhost", False),
        (None, "localhost", False),  # a common name alone names no host
    ],
)
def test_both_clients_decide_alike_about_a_certificate_that_signed_itself(
    is_authority: bool, names: str | None, host: str, is_accepted: bool, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    extensions = [f"basicConstraints=critical,CA:{str(is_authority).upper()}", names]
    added = [part for text in extensions if text for part in ("-addext", text)]
    subprocess.run(
        [shutil.which("openssl") or "openssl", "req", "-x509", "-newkey",
         "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate), *added],
        check=True, capture_output=True,
    )  # fmt: skip
    options = ("-Z", "-o", f"ssl_chain_cert={certificate},ssl_key={key}")

    async def read_awaited(address: str) -> Any:
        async with AsyncClient(address, tls=TLS(certificate), timeout=TIMEOUT_S) as client:
            return await client.get("k", "miss")

    def read(address: str) -> Any:
        with Client(address, tls=TLS(certificate), timeout=TIMEOUT_S) as client:
            return client.get("k", "miss")

    def outcome_of(call: Any) -> Any:
        try:
            return call() == "miss"
        except ServerUnavailable:
            return False

    with Server(arguments=options) as server:
        address = f"{host}:{server.address.rsplit(':', 1)[1]}"
        outcomes = [
            outcome_of(lambda: read(address)),
            outcome_of(lambda: asyncio.run(read_awaited(address))),
        ]
    assert outcomes == [is_accepted] * 2
    gc.collect()  # what the failed handshakes left is collected here, where its warnings are expected
