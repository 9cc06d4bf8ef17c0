"""The tests' own server, and what doctests see."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if "glasscache.testing" not in sys.modules:
    pytest_plugins = ["glasscache.testing"]

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache import Client, Server


@pytest.fixture
def client(glasscache_client: Client) -> Client:
    return glasscache_client


@pytest.fixture(scope="session")
def server(glasscache_server: Server) -> Server:
    return glasscache_server


@pytest.fixture
def save(tmp_path: Path) -> Callable[[str], str]:
    """Write a strategy file of these lines, and return its path."""

    def write(lines: str) -> str:
        path = tmp_path / f"{uuid.uuid4()}.strategy"
        path.write_text(f"glasscache-strategy 1\n{lines}")
        return str(path)

    return write
