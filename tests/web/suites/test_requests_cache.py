"""requests-cache's own tests of a storage and of a backend, from its source distribution, on ours.

`TestStorage` is the storage as it is: a test that needs a list of the keys, which a memcached server does not
have, is skipped with the name of the method. `TestStorageWithList` and `TestBackend` have the list in the
test's process, so that each assertion beside the lists is checked too: none of their tests is skipped.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from glasscache import Client, Server
from glasscache.contrib.requests_cache import GlassCacheBackend, GlassCacheDict
from requests_cache.serializers import pickle_serializer

os.environ["USE_PYTEST_HTTPBIN"] = "true"
sys.path.insert(0, str(Path(os.environ["REQUESTS_CACHE_TESTS"]).parent))
from tests.conftest import httpbin_wrapper  # noqa: F401 - the web server of its tests
from tests.integration.base_cache_test import BaseCacheTest
from tests.integration.base_storage_test import BaseStorageTest

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTINGS = {"test_str": "the text of all keys", "test_bool": "whether there are keys"}
"""Tests of a list of the keys that call no method of one."""
ADDRESS: dict[str, str] = {}
"""The address of the cache server; processes that a test forks see it too."""


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[Server]:
    with Server() as started_server:
        ADDRESS["server"] = started_server.address
        yield started_server


class ListedDict(GlassCacheDict):
    """The storage with a list of the keys that this process wrote; the store knows which still exist."""

    keys_by_namespace: ClassVar[dict[str, dict[str, None]]] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.keys_by_namespace.setdefault(self._namespace, {})[key] = None

    def __iter__(self) -> Iterator[str]:
        return (key for key in list(self.keys_by_namespace.get(self._namespace, ())) if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __str__(self) -> str:
        return str(list(self))


class TestStorage(BaseStorageTest):
    dict_class: type[GlassCacheDict] = GlassCacheDict

    def init_cache(self, name: str = "http", index: int = 0, clear: bool = True, **_: Any) -> Any:
        client = Client(ADDRESS["server"], timeout=30)
        cache = self.dict_class(f"{name}:{index}", client, serializer=pickle_serializer)
        if clear:
            cache.clear()
        return cache


class TestStorageWithList(TestStorage):
    dict_class = ListedDict


class ListedBackend(GlassCacheBackend):
    """The backend with listed storages."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(Client(ADDRESS["server"], timeout=30), name, **options)
        for storage in (self.responses, self.redirects):
            storage.__class__ = ListedDict


class TestBackend(BaseCacheTest):
    backend_class = ListedBackend


def _skip_if_it_lists(name: str, test: Any) -> Any:
    @functools.wraps(test)
    def run_or_skip(self: Any) -> None:
        if self.dict_class is not GlassCacheDict:
            test(self)
            return
        if name in LISTINGS:
            pytest.skip(f"needs {LISTINGS[name]}")
        try:
            test(self)
        except NotImplementedError as error:
            pytest.skip(str(error))

    return run_or_skip


for _name in dir(BaseStorageTest):
    if _name.startswith("test_"):
        setattr(TestStorage, _name, _skip_if_it_lists(_name, getattr(BaseStorageTest, _name)))
del BaseStorageTest, BaseCacheTest
