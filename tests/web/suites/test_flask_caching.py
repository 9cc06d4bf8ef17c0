"""Flask-Caching's own tests, from its source distribution (FLASK_CACHING_TESTS), on the backend.

Those of its backends (`GenericCacheTests`), and all tests of views, memoized functions, templates and signals
with an application whose CACHE_TYPE is ours. Its fake clock becomes real time, which a server goes by.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import flask
import flask_caching as fsc
import pytest
from glasscache import Client, Server
from glasscache.contrib.cachelib import GlassCache

sys.path.insert(0, os.environ["FLASK_CACHING_TESTS"])
from test_backend_cache import GenericCacheTests
from test_basic_app import *  # noqa: F403 - its tests become ours
from test_cache import *  # noqa: F403
from test_memoize import *  # noqa: F403
from test_signals import *  # noqa: F403
from test_subclassing import *  # noqa: F403
from test_templates import *  # noqa: F403
from test_view import *  # noqa: F403

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_WAIT_S = int(os.environ.get("LONGEST_WAIT_S", "61"))
"""Tests that wait longer are skipped: one, of an hour."""
CACHE_TYPE = "glasscache.contrib.flask.flask_cache"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started_server:
        yield started_server


@pytest.fixture
def app(server: Server) -> flask.Flask:
    with Client(server.address, timeout=5) as client:
        client.flush()
    application = flask.Flask(__name__, template_folder=os.environ["FLASK_CACHING_TESTS"])
    application.testing = True
    application.config["CACHE_TYPE"] = CACHE_TYPE
    application.config["CACHE_GLASSCACHE_SERVERS"] = server.address
    application.config["CACHE_GLASSCACHE_OPTIONS"] = {"codec": "pickle", "timeout": 5}
    return application


@pytest.fixture
def cache(app: flask.Flask) -> Any:
    flask_cache = fsc.Cache(app)
    flask_cache.clear()
    return flask_cache


class RealClock:
    def advance(self, seconds: float) -> None:
        if seconds > LONGEST_WAIT_S:
            pytest.skip(f"waits for {seconds} s of a server's time")
        time.sleep(seconds)


@pytest.fixture
def clock() -> RealClock:
    return RealClock()


@pytest.fixture(params=fsc.SUPPORTED_HASH_FUNCTIONS, ids=lambda method: method.__name__)
def hash_method(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def redis_server() -> None:
    pytest.skip("a test of the Redis backend's own settings")


class TestBackend(GenericCacheTests):
    @pytest.fixture
    def make_cache(self, server: Server) -> Any:
        def make_cleared_cache(*arguments: Any, **options: Any) -> GlassCache:
            created_cache = GlassCache(
                server.address, *arguments, codec="pickle", timeout=5, **options
            )
            created_cache.clear()
            return created_cache

        return make_cleared_cache


del GenericCacheTests
