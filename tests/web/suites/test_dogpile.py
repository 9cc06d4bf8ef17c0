"""dogpile.cache's own suites (generic, serializer, mutex) on the backend: part of `make dogpile-tests`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dogpile.cache import register_backend
from dogpile.testing.fixtures import (
    _GenericBackendFixture,
    _GenericBackendTestSuite,
    _GenericMutexTestSuite,
    _GenericSerializerTestSuite,
)
from glasscache import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

register_backend("glasscache", "glasscache.contrib.dogpile", "GlassCacheBackend")


class _Suite:
    backend = "glasscache"
    config_args: dict[str, Any] = {"arguments": {"timeout": 5, "servers": "127.0.0.1:1"}}  # noqa: RUF012


@pytest.fixture(autouse=True, scope="module")
def _server() -> Iterator[None]:
    with Server() as server:
        _Suite.config_args["arguments"]["servers"] = server.address
        yield


class TestBackend(_Suite, _GenericBackendTestSuite):
    pass


class TestSerializer(_Suite, _GenericSerializerTestSuite, _GenericBackendFixture):
    pass


class TestMutex(_Suite, _GenericMutexTestSuite):
    pass
