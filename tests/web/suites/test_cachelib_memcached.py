"""cachelib's own tests of its memcached backend, unchanged, over the drop-in for pylibmc and our server.

Their fixtures expect a memcached at port 11212 and run each test with pylibmc, here
`glasscache.compat.pylibmc`, and with python-memcached, which has no pool: tests of one skip it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from glasscache import Server
from glasscache.compat import pylibmc

sys.path.insert(0, os.environ["CACHELIB_TESTS"])
sys.modules["pylibmc"] = pylibmc

from conftest import key_prefix  # noqa: E402, F401 - a fixture
from test_memcached_cache import (  # noqa: E402
    TestMemcachedCache,  # noqa: F401
    TestMemcachedCacheCheckConnection,  # noqa: F401
    TestMemcachedCacheCheckConnectionLive,  # noqa: F401
    cache_factory,  # noqa: F401
    memcache_client_lib,  # noqa: F401
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PORT = 11212


@pytest.fixture(scope="module")
def memcached_server() -> Iterator[Server]:
    with Server(port=PORT) as server:
        yield server
