"""Personal pages stay personal: 50 users, random rules, applications that answer each user by name."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from web.random_users import RUNS

if TYPE_CHECKING:
    from glasscache import Client, Server

REQUEST_COUNT = int(os.environ.get("GLASSCACHE_TEST_REQUESTS", "600"))


@pytest.mark.parametrize("kind", sorted(RUNS))
def test_no_page_is_another_users(
    glasscache_client: Client, glasscache_server: Server, kind: str
) -> None:
    pytest.importorskip("starlette", reason="starlette is not installed")
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201 - shown if the test fails
    hit_count = RUNS[kind](glasscache_server.address, random.Random(seed), REQUEST_COUNT)
    assert hit_count > REQUEST_COUNT // 200


def test_no_page_of_django_is_another_users(
    glasscache_client: Client, glasscache_server: Server
) -> None:
    pytest.importorskip("django", reason="django is not installed")
    command = [
        sys.executable,
        "-m",
        "web.random_users",
        glasscache_server.address,
        str(REQUEST_COUNT),
    ]
    completed = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1]
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert int(re.search(r"hits (\d+)", completed.stdout)[1]) > REQUEST_COUNT // 200  # type: ignore[index]
