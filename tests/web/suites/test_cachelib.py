"""cachelib's own mixins, from its source distribution (CACHELIB_TESTS), on the backend."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, os.environ["CACHELIB_TESTS"])

from clear import ClearTests
from common import CommonTests
from delete_many_with_prefix import DeleteManyWithPrefixTests
from glasscache import Client, Server
from glasscache.contrib.cachelib import GlassCache
from has import HasTests

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started_server:
        yield started_server


@pytest.fixture(params=[None, "test-key-prefix:"], ids=["no_key_prefix", "with_key_prefix"])
def key_prefix(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["json", "pickle"])
def cache_factory(request: pytest.FixtureRequest, server: Server, key_prefix: str | None) -> None:
    def factory(self: Any, *arguments: Any, **options: Any) -> GlassCache:
        client = Client(server.address, timeout=5, codec=request.param)
        client.flush()
        options.setdefault("key_prefix", key_prefix or "")
        return GlassCache(client, *arguments, **options)

    request.cls.cache_factory = factory


@pytest.mark.usefixtures("cache_factory")
class TestGlassCache(CommonTests, ClearTests, HasTests, DeleteManyWithPrefixTests):
    pass


class TestCheckConnection:
    def test_unreachable_server_raises_when_enabled(self) -> None:
        with pytest.raises(RuntimeError, match="could not connect to memcached"):
            GlassCache("127.0.0.1:1", check_connection=True)

    def test_unreachable_server_is_lazy_by_default(self) -> None:
        assert isinstance(GlassCache("127.0.0.1:1"), GlassCache)

    def test_reachable_server_constructs_and_works(self, server: Server) -> None:
        cache = GlassCache(server.address, check_connection=True, timeout=5)
        assert cache.set("check-connection-key", "value")
        assert cache.get("check-connection-key") == "value"
