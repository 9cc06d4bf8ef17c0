"""The examples in docstrings, run against a server; and the types, held against the module."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from glasscache import Client, Server

MODULES = [
    "glasscache",
    "glasscache._local_methods",
    "glasscache.client",
    "glasscache.values",
    "glasscache.server",
    "glasscache.sim",
    "glasscache.sim.slabs",
    "glasscache.sim.traces",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str, client: Client, server: Server) -> None:
    import glasscache

    module = importlib.import_module(name)
    names: dict[str, Any] = {**vars(glasscache), **vars(module), "client": client, "server": server}
    names["Server"] = importlib.import_module("glasscache.server").Server
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in finder.find(module, name, extraglobs=names):
        client.flush()
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_examples_in_native_docstrings_hold(client: Client) -> None:
    from glasscache import _native

    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    count = 0
    for name, member in inspect.getmembers(_native.Client):
        text = inspect.getdoc(member) or ""
        if ">>>" in text:
            client.flush()
            runner.run(parser.get_doctest(text, {"client": client}, name, None, None))
            count += 1
    assert count >= 6
    assert runner.summarize(verbose=False).failed == 0


def test_every_name_in_the_reference_exists() -> None:
    page = Path(__file__).parents[2] / "docs/reference/python.md"
    names = re.findall(r"^::: (\S+)$", page.read_text(), flags=re.MULTILINE)
    assert len(names) >= 10
    for name in names:
        assert pydoc.locate(name) is not None, name


def test_the_stubs_are_the_module() -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "glasscache._native"]
    root = Path(__file__).parents[2]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_importing_brings_nothing_that_is_slow_to_import() -> None:
    code = "import sys, glasscache; print(*sys.modules)"
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    slow_modules = {
        "asyncio",
        "subprocess",
        "json",
        "datetime",
        "inspect",
        "dataclasses",
        "msgspec",
        "numpy",
    }
    assert slow_modules & set(completed.stdout.split()) == set()
