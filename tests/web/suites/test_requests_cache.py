"""requests-cache's own tests of a storage, from its source distribution (REQUESTS_CACHE_TESTS), on ours.

What needs a list of the keys, which a memcached server does not have, is skipped by name of what was called.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import Client, Server
from glasscache.contrib.requests_cache import GlassCacheDict
from requests_cache.serializers import pickle_serializer

sys.path.insert(0, str(Path(os.environ["REQUESTS_CACHE_TESTS"]).parent))
# Its conftest needs a web server and packages for it; of it a storage's tests take four constants.
sys.modules["tests.conftest"] = SimpleNamespace(  # type: ignore[assignment]
    CACHE_NAME="http", N_ITERATIONS=4, N_REQUESTS_PER_ITERATION=4, N_WORKERS=4
)
from tests.integration.base_storage_test import BaseStorageTest  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTINGS = {"test_str": "the text of all keys", "test_bool": "whether there are keys"}
"""Tests of a list of the keys that call no method of one."""


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[Server]:
    with Server() as one:
        TestStorage.address = one.address
        yield one


class TestStorage(BaseStorageTest):
    address = ""

    def init_cache(self, name: str = "http", index: int = 0, clear: bool = True, **_: Any) -> Any:
        client = Client(self.address, timeout=5)
        cache = GlassCacheDict(f"{name}:{index}", client, serializer=pickle_serializer)
        if clear:
            cache.clear()
        return cache


def _skipping_lists(name: str, test: Any) -> Any:
    @functools.wraps(test)
    def run(self: Any) -> None:
        if name in LISTINGS:
            pytest.skip(f"needs {LISTINGS[name]}")
        try:
            test(self)
        except NotImplementedError as error:
            pytest.skip(str(error))

    return run


for _name in dir(BaseStorageTest):
    if _name.startswith("test_"):
        setattr(TestStorage, _name, _skipping_lists(_name, getattr(BaseStorageTest, _name)))
del BaseStorageTest
