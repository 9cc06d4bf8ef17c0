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


@pytest.mark.parametrize("module_name", MODULES)
def test_examples_in_docstrings_hold(module_name: str, client: Client, server: Server) -> None:
    import glasscache

    module = importlib.import_module(module_name)
    namespace: dict[str, Any] = {
        **vars(glasscache),
        **vars(module),
        "client": client,
        "server": server,
    }
    namespace["Server"] = importlib.import_module("glasscache.server").Server
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in finder.find(module, module_name, extraglobs=namespace):
        client.flush()
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_examples_in_native_docstrings_hold(client: Client) -> None:
    from glasscache import _native

    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    documented_method_count = 0
    for method_name, member in inspect.getmembers(_native.Client):
        text = inspect.getdoc(member) or ""
        if ">>>" in text:
            client.flush()
            runner.run(parser.get_doctest(text, {"client": client}, method_name, None, None))
            documented_method_count += 1
    assert documented_method_count >= 6
    assert runner.summarize(verbose=False).failed == 0


def test_every_name_in_the_reference_exists() -> None:
    reference_page = Path(__file__).parents[2] / "docs/reference/python.md"
    names = re.findall(r"^::: (\S+)$", reference_page.read_text(), flags=re.MULTILINE)
    assert len(names) >= 10
    for name in names:
        assert pydoc.locate(name) is not None, name


@pytest.mark.long
def test_the_stubs_match_the_native_module() -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "glasscache._native"]
    root = Path(__file__).parents[2]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert completed.returncode == 0, completed.stdout + completed.stderr
