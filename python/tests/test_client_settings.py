"""The table of a client's settings: every front end takes them, and says the same of what is none."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import client_settings_pages
import pytest
import uvloop
from certificates import Authority
from glasscache import TLS, AsyncClient, BadSetting, Client
from glasscache._client_settings import (
    ASYNC_CLIENT_SETTINGS,
    CLIENT_SETTINGS,
    AsyncClientSettings,
    ClientSettings,
)
from glasscache.compat import pylibmc
from glasscache.compat.pymemcache.client.base import Client as PymemcacheClient
from glasscache.compat.pymemcache.client.base import PooledClient
from glasscache.compat.pymemcache.client.hash import HashClient
from glasscache.contrib._django_settings import translate_settings
from glasscache.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]

NOWHERE = "127.0.0.1:1"
TIMEOUT_S = 10.0


def _django(**settings: Any) -> None:
    refusals = translate_settings(NOWHERE, settings).refusals
    if refusals:
        raise BadSetting("; ".join(refusals))


def _dogpile(**settings: Any) -> None:
    pytest.importorskip("dogpile.cache")
    from glasscache.contrib.dogpile import GlassCacheBackend

    GlassCacheBackend({"url": NOWHERE, **settings})


def _cachelib(**settings: Any) -> None:
    pytest.importorskip("cachelib")
    from glasscache.contrib.cachelib import GlassCache

    GlassCache(NOWHERE, **settings)


FRONT_ENDS: dict[str, Callable[..., Any]] = {
    "Client": lambda **settings: Client(NOWHERE, **settings).close(),
    "AsyncClient": lambda **settings: AsyncClient(NOWHERE, **settings),
    "Django": _django,
    "dogpile": _dogpile,
    "cachelib": _cachelib,
    "pymemcache": lambda **settings: PymemcacheClient(NOWHERE, **settings).close(),
    "pymemcache, pooled": lambda **settings: PooledClient(NOWHERE, **settings).close(),
    "pymemcache, many servers": lambda **settings: HashClient([NOWHERE], **settings).close(),
    "pylibmc": lambda **settings: pylibmc.Client([NOWHERE], **settings).disconnect_all(),
}
"""How each front end is made of settings, by its name."""


@pytest.mark.parametrize(
    ("client_class", "rows", "settings_type"),
    [
        (Client, CLIENT_SETTINGS, ClientSettings),
        (AsyncClient, ASYNC_CLIENT_SETTINGS, AsyncClientSettings),
    ],
)
def test_the_signature_of_a_client_is_the_table(
    client_class: Any, rows: Any, settings_type: Any
) -> None:
    parameters = inspect.signature(client_class).parameters
    assert list(parameters) == ["servers", *rows]
    assert {name: parameters[name].default for name in rows} == {
        name: row.default for name, row in rows.items()
    }
    assert list(settings_type.__annotations__) == list(rows)


def test_the_documentation_of_the_client_has_every_setting() -> None:
    text = inspect.getdoc(Client) or ""
    for name, row in CLIENT_SETTINGS.items():
        assert row.sentence.split()[0] in text
        assert re.search(rf"^ *{name}: ", text, flags=re.MULTILINE), name
        assert row.since
        assert row.needs in {"", *CLIENT_SETTINGS}


class OfOwnSettings(Client):
    """A client whose constructor is its own."""

    def __new__(cls, servers: str, colour: str) -> Any:  # type: ignore[misc]
        """Make it."""
        del colour
        return super().__new__(cls, servers)

    def __init__(self, servers: str, colour: str) -> None:
        """Take the colour."""
        self.colour = colour


def test_a_derived_class_has_its_own_signature() -> None:
    assert list(inspect.signature(OfOwnSettings).parameters) == ["servers", "colour"]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_every_front_end_names_the_setting_that_was_meant(front_end: str) -> None:
    for given, meant in (
        ("cost", "costs"),
        ("value_byte_max", "value_bytes_max"),
        ("gutter_tll", "gutter_ttl"),
    ):
        with pytest.raises((TypeError, BadSetting), match=rf"{given}.*did you mean {meant}=\?"):
            FRONT_ENDS[front_end](**{given: None})


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"costs": "yes"}, "write True or False"),
        ({"value_bytes_max": "1m"}, "write a whole number"),
        ({"value_bytes_max": 10**400}, "is out of range: write 1 to"),
        ({"gutter": NOWHERE, "gutter_ttl": "soon"}, "write a number of seconds"),
        ({"gutter_ttl": 3.0}, "needs .*gutter.*: leave it out, or give both"),
        ({"near_ttl": 3.0}, "needs .*strategy.*: leave it out, or give both"),
        ({"share_by": "host"}, 'write "request" or "process"'),
        ({"keepalive": 0}, "write a whole number of seconds from 1 to 32767, or None"),
        ({"keepalive": 32_768}, "write a whole number of seconds from 1 to 32767, or None"),
        ({"keepalive": 0.5}, "write a whole number of seconds from 1 to 32767, or None"),
        ({"keepalive": True}, "write a whole number of seconds from 1 to 32767, or None"),
        ({"tls": 7}, "tls: True, TLS"),
    ],
)
def test_every_front_end_refuses_a_setting_that_makes_no_sense_in_the_same_words(
    front_end: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadSetting, match=sentence):
        FRONT_ENDS[front_end](**settings)


@pytest.mark.parametrize("front_end", ["Client", "AsyncClient", "Django", "dogpile"])
def test_what_a_setting_needs_may_be_turned_off(front_end: str) -> None:
    FRONT_ENDS[front_end](strategy=None, near_ttl=60, coherent=True, gutter=None, gutter_ttl=3.0)


def test_a_setting_of_another_client_is_named_as_here() -> None:
    for name, hint in (
        ("connect_timeout", "timeout="),
        ("ignore_exc", 'on_error="miss"'),
        ("username", "user="),
        ("socket_keepalive", "keepalive="),
    ):
        for front_end in ("Client", "AsyncClient"):
            with pytest.raises(TypeError, match=f"{name}': write {hint}"):
                FRONT_ENDS[front_end](**{name: 1})


# ---- keep-alive --------------------------------------------------------------------------------------


class KeepAlive(NamedTuple):
    """What is set on a socket."""

    is_on: bool
    idle_s: int
    interval_s: int


def _keep_alives() -> list[KeepAlive]:
    """Return that of each TCP socket of this process that is connected."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        if not path.is_socket():
            continue
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as copy:
            copy.getpeername()
            in_tcp = [
                copy.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
            ]
            is_on = bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
            found.append(KeepAlive(is_on, *in_tcp))
    return found


async def _use_asyncio(port: int, tls: TLS | None, keepalive: int | None) -> list[KeepAlive]:
    async with AsyncClient(
        f"localhost:{port}", timeout=TIMEOUT_S, keepalive=keepalive, tls=tls, **_login(tls)
    ) as client:
        await client.set("k", 1)
        return _keep_alives()


def _use_blocking(port: int, tls: TLS | None, keepalive: int | None) -> list[KeepAlive]:
    with Client(
        f"localhost:{port}", timeout=TIMEOUT_S, keepalive=keepalive, tls=tls, **_login(tls)
    ) as client:
        client.set("k", 1)
        return _keep_alives()


def _login(tls: TLS | None) -> dict[str, Any]:
    return {} if tls is None else {"user": "app", "password": "secret"}


@pytest.fixture(scope="module")
def plain_port() -> Iterator[int]:
    """Start a server; the result is its port."""
    with Server() as server:
        yield int(server.address.rsplit(":", 1)[1])


@pytest.mark.parametrize("is_encrypted", [False, True])
@pytest.mark.parametrize("face", ["blocking", "asyncio", "uvloop"])
def test_keep_alive_is_that_of_the_setting(
    face: str, is_encrypted: bool, plain_port: int, guarded_port: int, authority: Authority
) -> None:
    port, tls = (guarded_port, TLS(authority.file)) if is_encrypted else (plain_port, None)
    system_s = int(Path("/proc/sys/net/ipv4/tcp_keepalive_time").read_text())
    for keepalive in (None, 1, 30, 32_767):
        if face == "blocking":
            keep_alives = _use_blocking(port, tls, keepalive)
        else:
            run = asyncio.run if face == "asyncio" else uvloop.run
            keep_alives = run(_use_asyncio(port, tls, keepalive))
        assert keep_alives
        for keep_alive in keep_alives:
            assert keep_alive.is_on
            assert keep_alive.idle_s == (keepalive or system_s)
            assert keepalive is None or keep_alive.interval_s == keepalive


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_a_unix_socket_has_no_keep_alive(client_class: Any) -> None:
    with pytest.raises(BadSetting, match="unix socket has no TCP keep-alive; leave keepalive= out"):
        client_class(["localhost:1", "/run/cache.sock"], keepalive=30)
    client_class("/run/cache.sock", keepalive=None)
    client = Client("localhost:1", keepalive=30)
    with pytest.raises(BadSetting, match="leave keepalive= out"):
        client.set_servers("/run/cache.sock")


# ---- encrypted, with a login -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> Authority:
    """Make an authority."""
    return Authority()


@pytest.fixture(scope="module")
def guarded_port(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Start a server with TLS that requires a login; the result is its port."""
    users_file = tmp_path_factory.mktemp("users") / "users"
    users_file.write_text("app:secret\n")
    options = [*authority.sign("server").options(), "-S", "-Y", str(users_file)]
    with Server(arguments=options) as server:
        yield int(server.address.rsplit(":", 1)[1])


@pytest.mark.parametrize("is_context", [False, True])
def test_the_drop_in_modules_log_in_over_tls(
    authority: Authority, guarded_port: int, is_context: bool
) -> None:
    tls = authority.context() if is_context else TLS(authority.file)
    login = {"user": "app", "password": "secret"}
    for protocol in ("auto", "binary"):
        for client in (
            PymemcacheClient(
                ("localhost", guarded_port),
                timeout=TIMEOUT_S,
                tls_context=tls,
                protocol=protocol,
                **login,
            ),
            PooledClient(
                ("localhost", guarded_port),
                timeout=TIMEOUT_S,
                tls_context=tls,
                protocol=protocol,
                **login,
            ),
            HashClient(
                [("localhost", guarded_port)],
                timeout=TIMEOUT_S,
                tls_context=tls,
                protocol=protocol,
                **login,
            ),
        ):
            assert client.set("k", b"pymemcache", noreply=False)
            assert client.get("k") == b"pymemcache"
            client.close()
            assert client.get("k") == b"pymemcache"  # by a new connection
            client.close()
    for is_binary in (False, True):
        behaviors = {"connect_timeout": int(TIMEOUT_S * 1000)}
        mc = pylibmc.Client(
            [f"localhost:{guarded_port}"], behaviors, is_binary, "app", "secret", tls=tls
        )
        for client in (mc, mc.clone()):
            assert client.set("k", {"a": [1]})
            assert client.get("k") == {"a": [1]}
            client.disconnect_all()


def test_a_setting_in_two_spellings_is_refused() -> None:
    with pytest.raises(BadSetting, match="given twice"):
        PymemcacheClient(NOWHERE, tls_context=TLS(), tls=TLS())
    for front_end in ("Django", "dogpile"):
        with pytest.raises(BadSetting, match=r"given twice|leave one of them out"):
            FRONT_ENDS[front_end](tls_context=TLS(), tls=TLS())


def test_a_refused_login_of_a_drop_in_module_raises(
    authority: Authority, guarded_port: int
) -> None:
    client = PymemcacheClient(
        ("localhost", guarded_port),
        timeout=TIMEOUT_S,
        tls_context=TLS(authority.file),
        user="app",
        password="wrong",  # noqa: S106
    )
    with pytest.raises(Exception, match="login"):
        client.get("k")
    client.close()


def test_dogpile_logs_in_over_tls(authority: Authority, guarded_port: int) -> None:
    dogpile_cache = pytest.importorskip("dogpile.cache")
    dogpile_cache.register_backend("glasscache", "glasscache.contrib.dogpile", "GlassCacheBackend")
    region = dogpile_cache.make_region().configure(
        "glasscache",
        arguments={
            "url": f"localhost:{guarded_port}", "username": "app", "password": "secret",
            "tls_context": authority.context(), "socket_timeout": TIMEOUT_S,
        },
    )  # fmt: skip
    assert region.get_or_create("dogpile", lambda: [1, 2]) == [1, 2]
    assert region.get("dogpile") == [1, 2]


@pytest.mark.parametrize("like", [None, "pymemcache", "pylibmc"])
def test_django_logs_in_over_tls(authority: Authority, guarded_port: int, like: str | None) -> None:
    pytest.importorskip("django")
    from glasscache.contrib._django_client import DjangoClient

    own = {"tls": TLS(authority.file), "user": "app", "password": "secret"}
    options = {
        None: own,
        "pymemcache": {"tls_context": authority.context(), "user": "app", "password": "secret"},
        "pylibmc": {
            "tls": TLS(authority.file),
            "username": "app",
            "password": "secret",
            "binary": True,
        },
    }[like]
    settings = translate_settings(
        f"localhost:{guarded_port}",
        {**options, **({"like": like} if like else {}), "timeout": TIMEOUT_S},
    )
    assert settings.refusals == []
    client = DjangoClient(settings)
    assert client.set("django", {"a": 1}, 60)
    assert client.get("django") == {"a": 1}
    client.disconnect_all()


# ---- the page of the reference -----------------------------------------------------------------------


def test_the_reference_is_that_of_the_table() -> None:
    pages = {
        ROOT / "docs/reference/client-settings.md": client_settings_pages.reference_page(),
        ROOT / "docs/reference/client-settings.schema.json": json.dumps(
            client_settings_pages.json_schema(), indent=2
        )
        + "\n",
    }
    for path, text in pages.items():
        if "GLASSCACHE_WRITE_REFERENCE" in os.environ:
            path.write_text(text)
        assert path.read_text() == text, "run make reference-pages"
