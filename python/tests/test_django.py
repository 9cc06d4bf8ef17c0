"""Django's backend: the settings of old backends, `manage.py check`, moving and rolling back."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import Client, Codec, Server, UnreadableValue
from glasscache.contrib._django_options import (
    PYLIBMC_BEHAVIOR_TRANSLATORS,
    PYLIBMC_TRANSLATORS,
    PYMEMCACHE_TRANSLATORS,
)
from glasscache.contrib._django_settings import translate_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1:11211"
THREE_SERVERS = [ADDRESS, "127.0.0.1:11212", "127.0.0.1:11213"]


class CustomSerde:
    """A serialiser of the project's own."""


def pymemcache_serde_named(name: str) -> Any:
    return getattr(__import__("pymemcache.serde").serde, name)


def test_every_option_of_the_old_clients_is_decided() -> None:
    pylibmc = pytest.importorskip("pylibmc")
    pymemcache = pytest.importorskip("pymemcache")
    option_names = set(inspect.signature(pymemcache.HashClient.__init__).parameters) - {
        "self",
        "servers",
        "timeout",
    }
    assert option_names == set(PYMEMCACHE_TRANSLATORS)
    option_names = set(inspect.signature(pylibmc.Client.__init__).parameters) - {"self", "servers"}
    assert option_names == {*PYLIBMC_TRANSLATORS, "password"}  # which is a setting here, too
    assert {*pylibmc.all_behaviors, "namespace", "_retry_timeout"} == set(
        PYLIBMC_BEHAVIOR_TRANSLATORS
    )


TRANSLATED_OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"no_delay": True, "ignore_exc": True, "max_pool_size": 4, "use_pooling": True},
     {"on_error": "miss", "connections_max": 4}),
    ({"ignore_exc": False}, {"on_error": "raise"}),
    ({"max_pool_size": None}, {}),
    ({"timeout": 2, "connect_timeout": 3}, {"timeout": 3}),
    ({"timeout": None, "connect_timeout": None}, {}),
    ({"key_prefix": b"site:"}, {"namespace": b"site:"}),
    ({"pool_idle_timeout": 60, "lock_generator": object(), "socket_keepalive": None}, {}),
    ({"allow_unicode_keys": False, "default_noreply": True, "encoding": "utf-8"}, {}),
    ({"serializer": None, "deserializer": None, "hasher": None, "tls_context": None}, {}),
    ({"socket_module": socket}, {}),
    ({"retry_attempts": None, "retry_timeout": None, "dead_timeout": None}, {}),
    ({"binary": True}, {"protocol": "binary"}),
    ({"username": "me", "password": "secret"},
     {"user": "me", "password": "secret", "protocol": "binary"}),
    ({"binary": False}, {}),
    ({"username": None, "password": None}, {}),
    ({"behaviors": {"ketama": True}}, {"placement": "ketama-oneatatime"}),
    ({"behaviors": {"ketama": True, "ketama_weighted": True}}, {"placement": "ketama"}),
    ({"behaviors": {"hash": "crc"}}, {"placement": "crc"}),
    ({"behaviors": {"connect_timeout": 2000, "send_timeout": 500_000, "receive_timeout": 3_000_000}},
     {"timeout": 3.0, "placement": "modula"}),
    ({"behaviors": {"namespace": "site:"}}, {"namespace": "site:", "placement": "modula"}),
    ({"behaviors": {"tcp_nodelay": True, "tcp_keepalive": 1, "no_block": 1, "cas": 1, "buffer_requests": 0,
                    "verify_keys": 1, "pickle_protocol": 2, "failure_limit": 3, "retry_timeout": 1,
                    "_retry_timeout": 1, "dead_timeout": 5, "auto_eject": 0, "remove_failed": 0,
                    "num_replicas": 0, "ketama_hash": 0, "_hash_with_prefix_key": 0, "_sort_hosts": 0,
                    "_io_bytes_watermark": 1, "_io_key_prefetch": 1, "_io_msg_watermark": 1, "_noreply": 0,
                    "_poll_timeout": 1000, "_socket_recv_size": 1, "_socket_send_size": 1}},
     {"placement": "modula"}),
]  # fmt: skip


@pytest.mark.parametrize(("options", "expected"), TRANSLATED_OPTIONS)
def test_an_option_of_the_old_backend_is_translated(
    options: dict[str, Any], expected: dict[str, Any]
) -> None:
    like = "pylibmc" if {"binary", "username", "behaviors"} & options.keys() else "pymemcache"
    translation = translate_settings(ADDRESS, {**options, "like": like})
    assert (translation.refusals, translation.advice) == ([], [])
    translated_options = {
        option: value
        for option, value in translation.client_options.items()
        if option not in {"codec", "dialect"}
    }
    assert translated_options == {
        "placement": {"pylibmc": "modula", "pymemcache": "rendezvous"}[like],
        **expected,
    }
    assert translation.client_options["codec"].dialect == like
    translation_without_like = translate_settings(ADDRESS, options)
    assert translation_without_like.refusals == []
    assert len(translation_without_like.advice) == (0 if options.keys() <= {"timeout"} else 1)


OUT_OF_RANGE_NUMBER = 10**400
"""Neither a float nor a number of 64 bits."""
RECORDER_OUT_OF_RANGE_TEXT = 'OPTIONS["recorder"]: a number is out of range'

REFUSED_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"retry_attempts": 2}, "gutter"),
    ({"retry_timeout": 1}, "gutter"),
    ({"dead_timeout": 60}, "gutter"),
    ({"tls_context": object()}, "TLS"),
    ({"tls_context": True, "tls": True}, "leave one of them out"),
    ({"coherent": True}, 'needs OPTIONS["strategy"]'),
    ({"time_out": 3}, "did you mean timeout"),
    ({"timeout": "3"}, "write a number of seconds"),
    ({"socket_module": json}, "leave it out"),
    ({"serde": CustomSerde()}, '"codec"'),
    ({"serde": None}, '"codec"'),
    ({"hasher": CustomSerde}, '"placement"'),
    ({"encoding": "utf-16"}, "leave it out"),
    ({"ignore_exc": True, "on_error": "raise"}, "contradicts"),
    ({"timeout": 0}, "above 0"),
    ({"connect_timeout": "soon"}, "seconds"),
    ({"max_pool_size": "many"}, "connections_max"),
    ({"username": "me"}, 'needs OPTIONS["password"]'),
    ({"password": "secret"}, 'needs OPTIONS["user"]'),
    ({"behaviors": {"auto_eject": 1}}, "gutter"),
    ({"behaviors": {"remove_failed": 1}}, "gutter"),
    ({"behaviors": {"num_replicas": 1}}, "one copy"),
    ({"behaviors": {"hash": "md5"}}, "no placement"),
    ({"behaviors": {"ketama": True, "hash": "md5"}}, "no placement"),
    ({"behaviors": {"_sort_hosts": 1}}, "LOCATION"),
    ({"behaviors": {"_hash_with_prefix_key": 1}}, "leave it out"),
    ({"behaviors": {"colour": 1}}, "not a behavior"),
    ({"behaviors": ["ketama"]}, "not a dict"),
    ({"colour": "red"}, "not an option"),
    ({"recorder": {"sample": 0.5}}, 'OPTIONS["recorder"]: '),
    ({"recorder": 7}, 'OPTIONS["recorder"]: '),
    ({"recorder": {"folder": "log", "sample": 2}}, "sample must be a number from 0 to 1"),
    ({"recorder": {"folder": "log", "share": 1}}, "unexpected keyword argument 'share'"),
    ({"like": "redis"}, '"pymemcache" or "pylibmc"'),
    ({"like": "pymemcache", "behaviors": {}}, "an option of pylibmc"),
    ({"like": "pylibmc", "no_delay": True}, "an option of pymemcache"),
    ({"like": "pymemcache", "placement": "ketama"}, 'together with "like"'),
    ({"like": "pymemcache", "dialect": "pylibmc"}, 'together with "like"'),
    ({"like": "pymemcache", "codec": "json"}, 'together with "like"'),
    ({"placement": "foo"}, "one of"),
    ({"codec": "yaml"}, "one of"),
    ({"dialect": "dalli"}, '"codec": "json"'),
    ({"on_error": "ignore"}, '"raise"'),
    ({"lease": "x"}, "seconds"),
    ({"connections_max": 0}, "connections_max"),
    ({"connections_max": -1}, 'OPTIONS["connections_max"] is out of range'),
    ({"connections_max": OUT_OF_RANGE_NUMBER}, 'OPTIONS["connections_max"] is out of range'),
    ({"max_pool_size": OUT_OF_RANGE_NUMBER}, 'OPTIONS["connections_max"] is out of range'),
    ({"value_bytes_max": OUT_OF_RANGE_NUMBER}, 'OPTIONS["value_bytes_max"] is out of range'),
    ({"timeout": OUT_OF_RANGE_NUMBER}, 'OPTIONS["timeout"] is out of range'),
    ({"stale": OUT_OF_RANGE_NUMBER}, 'OPTIONS["stale"] is out of range'),
    ({"near_ttl": OUT_OF_RANGE_NUMBER}, 'OPTIONS["near_ttl"] is out of range'),
    ({"share": OUT_OF_RANGE_NUMBER}, 'OPTIONS["share"] is out of range'),
    ({"connect_timeout": OUT_OF_RANGE_NUMBER}, 'OPTIONS["connect_timeout"]: out of range'),
    ({"behaviors": {"receive_timeout": OUT_OF_RANGE_NUMBER}}, '"receive_timeout": out of range'),
    ({"recorder": {"folder": "log", "sample": OUT_OF_RANGE_NUMBER}}, RECORDER_OUT_OF_RANGE_TEXT),
    ({"recorder": {"folder": "log", "rotate_bytes": OUT_OF_RANGE_NUMBER}}, RECORDER_OUT_OF_RANGE_TEXT),
    ({"recorder": {"folder": "log", "memory_bytes": -1}}, RECORDER_OUT_OF_RANGE_TEXT),
]  # fmt: skip


@pytest.mark.parametrize(("options", "expected_text"), REFUSED_OPTIONS)
def test_an_option_without_a_translation_is_refused_with_what_to_write(
    options: dict[str, Any], expected_text: str
) -> None:
    translation = translate_settings(ADDRESS, options)
    assert len(translation.refusals) >= 1
    assert expected_text in translation.refusals[0]


def test_a_prefix_of_the_old_client_is_refused_where_it_would_miss() -> None:
    assert (
        "leave it out"
        in translate_settings(THREE_SERVERS, {"like": "pymemcache", "key_prefix": "a"}).refusals[0]
    )
    assert (
        translate_settings(THREE_SERVERS, {"like": "pymemcache", "key_prefix": b""}).refusals == []
    )


@pytest.mark.parametrize("server_location", ["", [], "::1", "a:99999", [("a", 1, 2, 3)], 5])
def test_a_location_that_names_no_server_is_refused(server_location: Any) -> None:
    assert translate_settings(server_location, {}).refusals != []


def test_the_serdes_of_pymemcache_are_taken_over() -> None:
    pytest.importorskip("pymemcache")
    value = {"a": ("x" * 100, {1, 2}), "b": bytearray(b"b" * 2000)}
    for name in ("pickle_serde", "compressed_serde"):
        pymemcache_serde = pymemcache_serde_named(name)
        translation = translate_settings(ADDRESS, {"like": "pymemcache", "serde": pymemcache_serde})
        assert translation.refusals == []
        codec: Codec = translation.client_options["codec"]
        body, flags = pymemcache_serde.serialize("k", value)
        assert codec.decode(flags, body) == value
        flags, body = codec.encode(value)
        assert pymemcache_serde.deserialize("k", body, flags) == value
        assert bool(flags & 8) == (name == "compressed_serde")


def test_without_like_keys_have_a_prefix_of_their_own() -> None:
    assert translate_settings(ADDRESS, {}).client_options["namespace"] == "gc~"
    assert translate_settings(ADDRESS, {"namespace": "x:"}).client_options["namespace"] == "gc~x:"
    assert translate_settings(ADDRESS, {"namespace": b"x:"}).client_options["namespace"] == b"gc~x:"
    for options in (
        {"like": "pymemcache"},
        {"dialect": "pymemcache", "placement": "rendezvous"},
        {"codec": Codec(migrate_from="pymemcache")},
    ):
        assert "namespace" not in translate_settings(ADDRESS, options).client_options


@pytest.fixture(scope="module")
def three_servers() -> Iterator[list[str]]:
    with Server() as first, Server() as second, Server() as third:
        yield [first.address, second.address, third.address]


def test_each_placement_of_libmemcached_finds_its_keys_or_is_refused(
    three_servers: list[str],
) -> None:
    pylibmc = pytest.importorskip("pylibmc")
    behavior_choices: dict[str, list[Any]] = {
        "hash": [None, "default", "md5", "crc", "fnv1_64"],
        "ketama": [None, 0, 1],
        "ketama_weighted": [None, 0, 1],
        "distribution": [None, "modula", "consistent", "consistent ketama"],
    }
    keys = [f"key{number}" for number in range(60)]
    accepted_count, wrong_placements = 0, []
    for values in itertools.product(*behavior_choices.values()):
        behaviors = {
            name: behavior
            for name, behavior in zip(behavior_choices, values, strict=True)
            if behavior is not None
        }
        translation = translate_settings(three_servers, {"like": "pylibmc", "behaviors": behaviors})
        if translation.refusals:
            continue
        accepted_count += 1
        pylibmc_client = pylibmc.Client(three_servers, behaviors=behaviors)
        pylibmc_client.set_multi(dict.fromkeys(keys, b"v"))
        with Client(
            translation.servers, **{**translation.client_options, "timeout": 5}
        ) as our_client:
            if len(our_client.get_many(keys)) != len(keys):
                wrong_placements.append(behaviors)
            our_client.flush()
        pylibmc_client.disconnect_all()
    assert wrong_placements == []
    assert accepted_count > 60


SITE_PROGRAM = """
import sys, json, logging, warnings
logging.basicConfig(stream=sys.stdout, format="LOG %(levelname)s %(message)s")
from django.conf import settings
settings.configure(
    SECRET_KEY="s", DEBUG=True, ALLOWED_HOSTS=["*"], INTERNAL_IPS=["127.0.0.1"], **json.loads(sys.argv[1])
)
import django
django.setup()
"""


def run_site(
    program: str, *, settings: dict[str, Any] | None = None, **cache: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program in a site with one cache."""
    default_cache = {
        "BACKEND": "glasscache.contrib.django.GlassCache",
        "LOCATION": ADDRESS,
        **cache,
    }
    all_settings = {"CACHES": {"default": default_cache}, **(settings or {})}
    command = [sys.executable, "-c", SITE_PROGRAM + program, json.dumps(all_settings)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=120
    )


CHECK_PROGRAM = """
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "check", *sys.argv[2:]])
"""


def test_check_refuses_an_option_without_a_traceback_and_without_an_app() -> None:
    completed = run_site(CHECK_PROGRAM, OPTIONS={"retry_attempts": 2, "colour": 1})
    assert completed.returncode == 1
    assert "Traceback" not in completed.stderr
    assert '(glasscache.E001) OPTIONS["retry_attempts"]' in completed.stderr
    assert 'OPTIONS["colour"]: not an option' in completed.stderr


def test_check_is_silent_about_what_is_translated() -> None:
    documented_options = {
        "no_delay": True,
        "ignore_exc": True,
        "max_pool_size": 4,
        "use_pooling": True,
    }
    completed = run_site(CHECK_PROGRAM, OPTIONS={**documented_options, "like": "pymemcache"})
    assert (completed.returncode, completed.stdout.strip()) == (
        0,
        "System check identified no issues (0 silenced).",
    )


def test_check_warns_of_options_of_an_old_backend_without_like() -> None:
    program = "warnings.simplefilter('default')" + CHECK_PROGRAM
    completed = run_site(program, OPTIONS={"no_delay": True})
    assert completed.returncode == 0
    assert "(glasscache.W001) OPTIONS has" in completed.stderr, completed.stderr


def test_the_cache_has_the_reports_of_its_client(server: Server) -> None:
    program = """
import json
from django.core.cache import cache
with cache.request(route="home"):
    cache.set("k", "v")
    assert cache.get("k") == "v"
print(json.loads(cache.report(json=True))["stats"]["by_size"][0]["calls"] > 0)
print("calls" in str(cache.report()), "bytes" in str(cache.explain("k")))
try:
    cache.near_stats()
except Exception as error:
    print(type(error).__name__)
"""
    completed = run_site(program, LOCATION=server.address)
    lines = completed.stdout.split("\n")
    assert lines[:3] == ["True", "True True", "BadSetting"], completed.stdout + completed.stderr


SITE_OF_ONE_PAGE = """
from django.core.cache import cache
from django.http import HttpResponse
from django.urls import path

def page(request, name):
    value = cache.get(name)
    if value is None:
        cache.set(name, value := "page " + name)
    cache.get_many(["a", "b"])
    return HttpResponse(value)

urlpatterns = [path("pages/<str:name>/", page)]
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "glasscache_report", *json.loads(sys.argv[1])["ARGUMENTS"]])
"""


def report_of_site(*arguments: str, **cache: Any) -> subprocess.CompletedProcess[str]:
    settings = {
        "INSTALLED_APPS": ["glasscache.contrib.django_app"],
        "ROOT_URLCONF": "__main__",
        "ARGUMENTS": arguments,
    }
    return run_site(SITE_OF_ONE_PAGE, settings=settings, **cache)


def test_the_report_of_a_page_is_that_of_its_second_request(server: Server) -> None:
    completed = report_of_site("/pages/one/", "/none/", LOCATION=server.address)
    assert completed.returncode == 0, completed.stderr
    page, missing = completed.stdout.split("/none/: status 404")
    assert "/pages/one/: status 200, the second request.\n\ndefault: 2 calls" in page
    assert "write" not in page
    assert "default: 0 calls" in missing
    completed = report_of_site("/pages/one/", "--json", LOCATION=server.address)
    (result,) = json.loads(completed.stdout)
    stats = result["caches"]["default"]
    calls = [row["calls"] for table in ("by_size", "by_width") for row in stats[table]]
    assert sum(calls) == 2
    assert stats["servers"][server.address]["is_down"] is False


def test_the_report_without_a_page_and_of_another_backend(server: Server) -> None:
    completed = report_of_site(LOCATION=server.address)
    assert "default: 2 calls, 0 misses by error" in completed.stdout, completed.stderr
    completed = report_of_site("--cache", "pages", LOCATION=server.address)
    assert (completed.returncode, completed.stdout) == (1, "")
    assert "CACHES has no 'pages': write one of default" in completed.stderr
    backend = "django.core.cache.backends.locmem.LocMemCache"
    completed = report_of_site(BACKEND=backend, LOCATION="")
    assert "no cache with the backend glasscache.contrib.django.GlassCache" in completed.stderr


def test_the_app_lets_check_warn_of_old_options() -> None:
    settings = {"INSTALLED_APPS": ["glasscache.contrib.django_app"]}
    completed = run_site(CHECK_PROGRAM, settings=settings, OPTIONS={"no_delay": True})
    assert "(glasscache.W001)" in completed.stderr
    assert "1 issue" in completed.stderr


SESSION_ENGINES = ["cache", "cached_db", "db"]


@pytest.mark.parametrize("engine", SESSION_ENGINES)
@pytest.mark.parametrize("is_imported_before", [False, True])
def test_check_refuses_sessions_and_a_strategy_in_one_cache(
    tmp_path: Path, engine: str, is_imported_before: bool
) -> None:
    strategy_file = tmp_path / "best.strategy"
    strategy_file.write_text("glasscache-strategy 1\nstrategy lru:10\n")
    options = {"strategy": str(strategy_file), "near_never": ["cart:"]}
    settings = {"SESSION_ENGINE": f"django.contrib.sessions.backends.{engine}"}
    program = "import glasscache.contrib.django" * is_imported_before + CHECK_PROGRAM
    completed = run_site(program, settings=settings, OPTIONS=options)
    if engine == "db":
        assert completed.returncode == 0, completed.stderr
        return
    assert completed.returncode == 1
    assert "glasscache.E002" in completed.stderr
    assert 'SESSION_CACHE_ALIAS = "sessions"' in completed.stderr
    silenced = {**settings, "SILENCED_SYSTEM_CHECKS": ["glasscache.E002"]}
    assert run_site(program, settings=silenced, OPTIONS=options).returncode == 0
    plain = {"BACKEND": "glasscache.contrib.django.GlassCache", "LOCATION": ADDRESS}
    strategic = {**plain, "OPTIONS": options}
    apart = {
        **settings,
        "SESSION_CACHE_ALIAS": "sessions",
        "CACHES": {"default": strategic, "sessions": plain},
    }
    completed = run_site(program, settings=apart)
    assert completed.returncode == 0, completed.stderr


def test_sessions_of_an_engine_with_a_prefix_of_its_own_are_not_kept(
    tmp_path: Path, glasscache_server: Server
) -> None:
    strategy_file = tmp_path / "best.strategy"
    strategy_file.write_text("glasscache-strategy 1\nstrategy lru:10\n")
    program = """
import sys, types
engine = types.ModuleType("visitors")
class SessionStore: cache_key_prefix = "visitor-"
engine.SessionStore = SessionStore
sys.modules["visitors"] = engine
from django.core.cache import cache
client = cache._cache.client
for key, calls in (("visitor-1", 3), ("page-1", 1)):
    cache.set(key, 1)
    before = client.near_stats()["calls"]
    for _ in range(3): cache.get(key)
    print(client.near_stats()["calls"] - before == calls)
"""
    settings = {"SESSION_ENGINE": "visitors"}
    options = {"strategy": str(strategy_file), "timeout": 5}
    completed = run_site(
        program, settings=settings, LOCATION=glasscache_server.address, OPTIONS=options
    )
    assert completed.stdout.split() == ["True", "True"], completed.stderr


def test_the_check_has_the_tag_of_caches_and_a_message_for_each_option() -> None:
    program = """
import glasscache.contrib.django
from django.core import checks
for message in checks.run_checks(tags=[checks.Tags.caches]):
    print(message.id, message.msg)
"""
    completed = run_site(program, OPTIONS={"tls_context": 1, "no_delay": True})
    lines = completed.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["glasscache.E001", "glasscache.W001"], (
        completed.stdout + completed.stderr
    )
    assert 'write "like"' in lines[1]


def test_what_the_check_refuses_is_what_the_first_call_raises() -> None:
    program = """
from django.core.cache import cache
try:
    cache.get("k")
except Exception as error:
    print(type(error).__name__, error)
"""
    completed = run_site(program, OPTIONS={"colour": 1})
    assert completed.stdout.startswith('BadSetting OPTIONS["colour"]: not an option'), (
        completed.stdout + completed.stderr
    )


def test_an_entry_that_cannot_be_read_is_a_counted_miss_and_one_warning(server: Server) -> None:
    with Client(server.address, timeout=5, dialect="pymemcache", codec="pickle") as other_client:
        other_client.flush()
        for number in range(3):
            other_client.set(f":1:k{number}", {number})
    with Client(server.address, timeout=5, codec="json") as other_client:
        other_client.set(":1:own", {"a": [1, 2]})
    program = """
import asyncio
from django.core.cache import cache
from django.core.cache import caches
print(cache.get("k0", "missed"), cache.get("k1"), cache.get_many(["k0", "k2"]), cache.get("own", "missed"))
print(cache.get_or_set("k1", lambda: "made"), cache.get("k1"))
async def awaited():
    return await cache.aget("k0", "missed"), await cache.aget_many(["k0", "k2"])
print(asyncio.run(awaited()))
print(cache.stats()["misses_by_error"])
"""
    server_location = {"LOCATION": server.address}
    completed = run_site(program, OPTIONS={"like": "pylibmc", "timeout": 5}, **server_location)
    lines = completed.stdout.splitlines()
    assert [line for line in lines if line.startswith("LOG")] == [
        line for line in lines if 'set OPTIONS["like"]' in line
    ]
    assert sum(line.startswith("LOG WARNING") for line in lines) == 1, completed.stdout
    # Another client's pickles are read where its flags are the same; our own dialect's values are not.
    assert "missed" in completed.stdout

    completed_with_other_codec = run_site(
        program,
        OPTIONS={"dialect": "own", "codec": "json", "namespace": "", "timeout": 5},
        **server_location,
    )
    assert completed_with_other_codec.returncode == 0, completed_with_other_codec.stderr


def test_a_pickle_of_a_class_that_is_gone_is_a_miss(server: Server) -> None:
    pickle_of_missing_class = b"cgone_module\nGone\n."
    with Client(server.address, timeout=5, codec=flagged_codec()) as other_client:
        other_client.set(":1:gone", (1, pickle_of_missing_class))
        other_client.set(":1:odd", (0x400, b"?"))
    program = """
from django.core.cache import cache
print(cache.get("gone", "missed"), cache.get("odd", "missed"), cache.get_many(["gone", "odd"]))
cache.set("gone", [1])
print(cache.get("gone"), cache.stats()["misses_by_error"])
"""
    for like in ("pymemcache", "pylibmc"):
        completed = run_site(program, LOCATION=server.address, OPTIONS={"like": like, "timeout": 5})
        lines = completed.stdout.splitlines()
        assert lines[-2:] == ["missed missed {}", "[1] 4"], completed.stdout + completed.stderr
        assert sum(line.startswith("LOG") for line in lines) == 1
        with Client(server.address, timeout=5, codec=flagged_codec()) as other_client:
            other_client.set(":1:gone", (1, pickle_of_missing_class))


def flagged_codec() -> Any:
    from glasscache.compat._flagged import FlaggedCodec

    return FlaggedCodec()


def test_the_plain_client_raises_and_names_the_two_settings(server: Server) -> None:
    with Client(server.address, timeout=5, dialect="pymemcache") as other_client:
        other_client.set("theirs", "text")
    with (
        Client(server.address, timeout=5) as client,
        pytest.raises(UnreadableValue, match=r'dialect="pymemcache", placement="rendezvous"'),
    ):
        client.get("theirs")


def test_a_key_that_our_prefix_makes_too_long_is_kept_all_the_same(server: Server) -> None:
    program = """
from django.core.cache import cache
for length in (200, 243, 244, 245, 246, 247):
    key = "k" * length
    cache.set(key, length)
    assert cache.get(key) == length and cache.get_many([key]) == {key: length}, length
key = "ж" * 123
cache.set(key, 1)
cache.set(key[:-1] + "з", 2)
print(cache.get(key), cache.incr(key), cache.delete(key), cache.get(key))
"""
    completed = run_site(program, LOCATION=server.address, OPTIONS={"timeout": 5})
    assert completed.stdout.strip() == "1 2 True None", completed.stdout + completed.stderr


def test_one_client_serves_all_threads_of_a_process(server: Server) -> None:
    program = """
import threading
from django.core.cache import cache, caches
clients = set()
def use():
    cache.get("k")
    clients.add(id(caches["default"]._cache.client))
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
use()
print(len(clients))
"""
    completed = run_site(program, LOCATION=server.address, OPTIONS={"timeout": 5})
    assert completed.stdout.strip() == "1", completed.stdout + completed.stderr


PANEL_PROGRAM = """
import asyncio
from django.core.cache import cache
from django.http import HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import include, path

def view(request):
    cache.set("a", 1)
    cache.get("a"), cache.get("never"), cache.get_many(iter(["a", "b"])), cache.get_or_set("c", lambda: 2)
    return HttpResponse("<html><body>page</body></html>")

async def aview(request):
    await cache.aset("a", 1)
    await cache.aget("a"), await cache.aget_many(["a", "b"])
    return HttpResponse("<html><body>page</body></html>")

urlpatterns = [path("page", view), path("apage", aview)]
try:
    from debug_toolbar.toolbar import debug_toolbar_urls
    urlpatterns += debug_toolbar_urls()
except ImportError:
    urlpatterns.append(path("__debug__/", include("debug_toolbar.urls")))

from debug_toolbar.toolbar import DebugToolbar
panels = []
import glasscache.contrib.debug_toolbar as module
original_generate_stats = module.GlasscachePanel.generate_stats
def generate_stats_and_keep_panel(self, request, response):
    original_generate_stats(self, request, response)
    panels.append((self.get_stats(), self.nav_subtitle, self.content))
module.GlasscachePanel.generate_stats = generate_stats_and_keep_panel
assert Client().get("/page").status_code == 200
cache.get("outside")
async def awaited():
    assert (await AsyncClient().get("/apage")).status_code == 200
asyncio.run(awaited())
for stats, subtitle, content in panels:
    calls = [[call["name"], call["keys"], call["found"]] for call in stats["calls"]]
    print(json.dumps(calls), subtitle.split(",")[0], "get</td>" in content)
"""


def test_the_panel_of_the_debug_toolbar_has_calls_keys_and_time(server: Server) -> None:
    pytest.importorskip("debug_toolbar")
    settings = {
        "ROOT_URLCONF": "__main__",
        "INSTALLED_APPS": ["django.contrib.staticfiles", "debug_toolbar"],
        "STATIC_URL": "/static/",
        "MIDDLEWARE": ["debug_toolbar.middleware.DebugToolbarMiddleware"],
        "DEBUG_TOOLBAR_PANELS": ["glasscache.contrib.debug_toolbar.GlasscachePanel"],
        "DEBUG_TOOLBAR_CONFIG": {"IS_RUNNING_TESTS": False},
        "TEMPLATES": [
            {"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}
        ],
    }
    completed = run_site(
        PANEL_PROGRAM, settings=settings, LOCATION=server.address, OPTIONS={"timeout": 5}
    )
    lines = [line for line in completed.stdout.splitlines() if not line.startswith("LOG")]
    blocking_calls = [
        ["set", ["a"], None], ["get", ["a"], 1], ["get", ["never"], 0], ["get_many", ["a", "b"], 1],
        ["get_or_set", ["c"], None],
    ]  # fmt: skip
    awaited_calls = [["aset", ["a"], None], ["aget", ["a"], 1], ["aget_many", ["a", "b"], 1]]
    assert lines == [
        f"{json.dumps(blocking_calls)} 5 calls True",
        f"{json.dumps(awaited_calls)} 3 calls True",
    ], completed.stdout + completed.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_site_moves_from_its_old_backend_and_back() -> None:
    pytest.importorskip("pylibmc")
    pytest.importorskip("pymemcache")
    from glasscache.server import find_command

    command = [
        sys.executable,
        str(ROOT / "tests/django/backend_migration.py"),
        "--memcached",
        "",
        "--server",
    ]
    command += [
        f"{find_command()} serve",
        "--values",
        "12",
        "--seconds",
        "1",
        "--counts",
        "3",
        "--short",
    ]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert completed.stdout.count("ok ") == 12
