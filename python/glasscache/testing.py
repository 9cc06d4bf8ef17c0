"""pytest fixtures: a server of the test session, and a client of an empty cache for each test.

A project that has glasscache installed has them without a line of set-up:

    def test_my_view(glasscache_client): ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glasscache.client import Client
    from glasscache.server import Server

__all__ = ["glasscache_client", "glasscache_server"]


@pytest.fixture(scope="session")
def glasscache_server() -> Iterator[Server]:
    """Start a server for the test session."""
    from glasscache.server import Server  # noqa: PLC0415 - only sessions that use it pay for it

    with Server() as server:
        yield server


@pytest.fixture
def glasscache_client(glasscache_server: Server) -> Iterator[Client]:
    """Return a client of an empty cache."""
    from glasscache.client import Client  # noqa: PLC0415

    with Client(glasscache_server.address, timeout=5) as client:
        client.flush()
        yield client
