"""The tests' own server, and what doctests see."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if "glasscache.testing" not in sys.modules:
    pytest_plugins = ["glasscache.testing"]

if TYPE_CHECKING:
    from glasscache import Client, Server


@pytest.fixture
def client(glasscache_client: Client) -> Client:
    return glasscache_client


@pytest.fixture(scope="session")
def server(glasscache_server: Server) -> Server:
    return glasscache_server
