"""What python-binary-memcached's tests expect of a conftest.py, which its source distribution leaves out."""

from __future__ import annotations

import os

import pytest

IPV6_PORT = 5002


@pytest.fixture
def memcached_ipv6() -> None:
    """The server at `IPV6_PORT`, which runs already."""


@pytest.fixture
def memcached_sasl() -> tuple[int, str, str]:
    """The port of the server with SASL, user and password."""
    return 5003, os.environ["SASL_USER"], os.environ["SASL_PASSWORD"]
