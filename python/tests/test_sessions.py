"""Sessions under a strategy: no process keeps one, fetches one ahead of need, or names one in a log."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import logging
import os
import secrets
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import Client
from glasscache.telemetry import log_slow_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from glasscache import Server

    SaveStrategy = Callable[[str], str]

CART_WRITES = int(os.environ.get("SESSION_CART_WRITES", "40"))

SESSION_PREFIXES = [
    ":1:django.contrib.sessions.cache",
    "shop:7:django.contrib.sessions.cached_db",
    "session:",
    "flask_cache_session:",
    "starsessions.",
    "AIOHTTP_SESSION_",
]


@pytest.mark.parametrize("prefix", SESSION_PREFIXES)
@pytest.mark.parametrize("rules", ["lru:100", "fixed:2", "lru:100+together:60", "lru:100+children"])
def test_a_session_is_read_from_its_server_each_time(
    server: Any,
    save_strategy: SaveStrategy,
    namespace: str,
    other_client: Client,
    prefix: str,
    rules: str,
) -> None:
    session_key, session_id = f"{prefix}{secrets.token_hex(16)}", "id"
    lines = [f"strategy {rules}", f"key {session_key}", "key page"]
    lines += [f"child page {session_key}"] if "children" in rules else []
    lines += [f"together page {session_key}"] if "together" in rules else []
    client = Client(server.address, namespace=namespace, strategy=save_strategy("\n".join(lines)))
    for number, in_request in itertools.product(range(5), [False, True]):
        other_client.set_many({"page": "page", session_key: (session_id, number)})
        with client.request() if in_request else contextlib.nullcontext():
            client.get("page")
            calls_before = client.near_stats()["calls"]
            assert client.get(session_key) == (session_id, number)
            assert client.get_many(["page", session_key])[session_key] == (session_id, number)
            other_client.set(session_key, "changed meanwhile")
            assert client.get(session_key) == "changed meanwhile"
            assert client.near_stats()["calls"] == calls_before + 3
    assert client.near_stats()["near_items"] <= 1


def test_a_session_in_base64_is_read_from_its_server_each_time(
    server: Any, save_strategy: SaveStrategy
) -> None:
    strategy_file = save_strategy("strategy lru:100")
    namespace = f"größe {secrets.token_hex(4)} "
    client = Client(server.address, namespace=namespace, strategy=strategy_file, keys="base64")
    other_client = Client(server.address, namespace=namespace, keys="base64")
    for number in range(3):
        other_client.set("session:abc", number)
        assert client.get("session:abc") == number


def test_a_log_and_its_strategy_have_no_session_in_clear(server: Any, tmp_path: Path) -> None:
    session_ids = [secrets.token_hex(16) for _ in SESSION_PREFIXES]
    for salt in (None, "salt"):
        client = Client(server.address, namespace=secrets.token_hex(4))
        folder = tmp_path / f"log-{salt}"
        recorder = client.recorder(folder, format="jsonl", salt=salt)
        for number in range(40):
            with recorder.request(page=f"session:{session_ids[0]}"):
                client.get(f"page:{number % 4}")
                for prefix, session_id in zip(SESSION_PREFIXES, session_ids, strict=True):
                    client.get(f"{prefix}{session_id}")
        recorder.close()
        log_text = "".join(path.read_text() for path in folder.glob("*.jsonl"))
        assert "sess" in log_text
        assert not [session_id for session_id in session_ids if session_id in log_text]


def test_a_log_of_slow_calls_has_no_session_in_clear(
    server: Any, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    client, session_id = Client(server.address, namespace=namespace), secrets.token_hex(16)
    log_slow_calls(client, threshold=0, keys=True)
    with caplog.at_level(logging.WARNING):
        client.set(f"session:{session_id}", 1)
        client.get_many([f"session:{session_id}", "page"])
        client.set_many({f"session:{session_id}": 2})
    assert caplog.text.count("session:#") == 3
    assert "page" in caplog.text
    assert session_id not in caplog.text


DJANGO_SITE = """
    import sys
    import django
    from django.conf import settings
    options, engine, database = eval(sys.argv[2]), sys.argv[3], sys.argv[4]
    settings.configure(
        SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"],
        INSTALLED_APPS=["django.contrib.sessions", "django.contrib.auth", "django.contrib.contenttypes"],
        MIDDLEWARE=["glasscache.contrib.django.request_middleware",
                    "django.contrib.sessions.middleware.SessionMiddleware",
                    "django.contrib.auth.middleware.AuthenticationMiddleware"],
        SESSION_ENGINE=f"django.contrib.sessions.backends.{engine}",
        CACHES={"default": {"BACKEND": "glasscache.contrib.django.GlassCache", "LOCATION": sys.argv[1],
                            "KEY_PREFIX": "shop", "OPTIONS": {"timeout": 5, **options}}},
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": database,
                               "OPTIONS": {"timeout": 20}}},
    )
    django.setup()
    from django.contrib.auth import get_user_model, login, logout
    from django.core.cache import cache
    from django.core.management import call_command
    from django.http import HttpResponse
    from django.urls import path
    from wsgiref.simple_server import WSGIRequestHandler, make_server

    def cart(request):
        cache.get_many([f"lamp:{number}" for number in range(20)])
        return HttpResponse(str(len(request.session.get("cart", []))))

    def add(request, lamp):
        request.session["cart"] = [*request.session.get("cart", []), lamp]
        return cart(request)

    def enter(request):
        login(request, get_user_model().objects.get(username="u1"))
        return HttpResponse("in")

    def leave(request):
        logout(request)
        return HttpResponse("out")

    def who(request):
        return HttpResponse(str(request.user))

    urlpatterns = [path("cart/", cart), path("add/<int:lamp>/", add), path("in/", enter), path("out/", leave),
                   path("who/", who)]
    if len(sys.argv) > 5:
        call_command("migrate", verbosity=0)
        get_user_model().objects.create_user("u1")
    else:
        from django.core.wsgi import get_wsgi_application

        class Quiet(WSGIRequestHandler):
            def log_message(self, *arguments):
                pass

        site = make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=Quiet)
        print(site.server_port, flush=True)
        site.serve_forever()
"""


class Visitor:
    """A browser: it has the cookies that it was given."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = itertools.cycle(ports)
        self.cookies: dict[str, str] = {}

    def get(self, path: str) -> str:
        """Request a page from the next process."""
        connection = http.client.HTTPConnection("127.0.0.1", next(self._ports), timeout=30)
        with contextlib.closing(connection):
            cookie_text = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            connection.request("GET", path, headers={"Cookie": cookie_text})
            response = connection.getresponse()
            text = response.read().decode()
            assert response.status == 200, text
            for cookie in response.headers.get_all("Set-Cookie") or []:
                name, _, value = cookie.partition(";")[0].partition("=")
                self.cookies[name] = value
            return text


@contextlib.contextmanager
def _run_site(
    address: str, options: dict[str, Any], engine: str, folder: Path
) -> Generator[list[int]]:
    """Run three processes of the site; give their ports."""
    arguments = [address, repr(options), engine, str(folder / "site.sqlite3")]
    command = [sys.executable, "-c", textwrap.dedent(DJANGO_SITE), *arguments]
    subprocess.run([*command, "migrate"], check=True)
    with contextlib.ExitStack() as processes:
        ports: list[int] = []
        started = [
            processes.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            for _ in range(3)
        ]
        for process in started:
            processes.callback(process.kill)
        for process in started:
            assert process.stdout is not None
            ports.append(int(process.stdout.readline()))
        yield ports


@pytest.fixture(params=["cache", "cached_db"])
def site_ports(
    request: pytest.FixtureRequest,
    glasscache_server: Server,
    save_strategy: SaveStrategy,
    tmp_path: Path,
    near_options: dict[str, Any],
) -> Iterator[list[int]]:
    """The ports of a site whose cache has a strategy."""
    pytest.importorskip("django")
    options = {"strategy": save_strategy("strategy lru:500"), **near_options}
    with _run_site(glasscache_server.address, options, request.param, tmp_path) as ports:
        yield ports


@pytest.mark.parametrize("near_options", [{"near_ttl": 10}, {"coherent": True}], ids=str)
def test_no_write_into_a_cart_is_lost_and_a_logout_holds(
    site_ports: list[int],
) -> None:
    buyer = Visitor(site_ports)
    for _ in range(CART_WRITES):
        buyer.get("/cart/")
        buyer.get("/cart/")
        buyer.get("/add/7/")
    assert buyer.get("/cart/") == str(CART_WRITES)

    visitor = Visitor(site_ports)
    visitor.get("/in/")
    assert {visitor.get("/who/") for _ in range(6)} == {"u1"}
    old_cookies = dict(visitor.cookies)
    visitor.get("/out/")
    visitor.cookies = old_cookies
    assert {visitor.get("/who/") for _ in range(32)} == {"AnonymousUser"}
