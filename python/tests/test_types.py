"""Types: mypy and pyright, both strict, over the documented features and over every example of the guides."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from glasscache import Server

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

PRELUDE = """\
from glasscache import AsyncClient, Client, Codec
servers = ["127.0.0.1:11211"]
client = Client(servers, timeout=1)
def render() -> str:
    return "page"
# ---- the example
"""
"""What an example of a guide may take for granted."""

WORDS_OF_UNRUNNABLE_EXAMPLES = (".example", "spare1:")
"""An example with one of these needs hosts that a test has not."""

STRATEGY = "glasscache-strategy 1\nstrategy fixed-bytes:524288+s3fifo:75\nkey c:1:1\n"
"""What an example finds in `best.strategy`, which another step of its guide has written."""


def document_examples() -> list[tuple[str, str]]:
    """Return a name and the text of every example in the documents."""
    return [
        (f"{document.stem.replace('-', '_').lower()}_{number}", text)
        for document in DOCUMENTS
        for number, text in enumerate(PYTHON_BLOCK.findall(document.read_text()))
    ]


EXAMPLES = document_examples()


def uses_glasscache(text: str) -> bool:
    """Whether an example is of this package alone."""
    return not any(
        word in text for word in ("import pymemcache", "from pymemcache", "import pylibmc")
    )


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every example as a program, and the program of the documented features."""
    folder = tmp_path_factory.mktemp("programs")
    for name, text in EXAMPLES:
        if uses_glasscache(text):
            folder.joinpath(f"{name}.py").write_text(PRELUDE + text)
    typed_program = Path(__file__).with_name("typed_program.py").read_text()
    folder.joinpath("typed_program.py").write_text(typed_program)
    return folder


def test_the_documents_have_examples() -> None:
    assert len([text for _, text in EXAMPLES if uses_glasscache(text)]) >= 5


@pytest.mark.long
def test_examples_and_documented_features_pass_mypy_strict(programs: Path) -> None:
    files = map(str, sorted(programs.glob("*.py")))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", *files]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.long
def test_examples_and_documented_features_pass_pyright_strict(programs: Path) -> None:
    settings = (
        f'{{"typeCheckingMode": "strict", "include": ["."], "extraPaths": ["{ROOT}/python"],\n'
        '"reportUnusedExpression": false, "reportUnusedImport": false, "reportMissingTypeStubs": false}'
    )
    programs.joinpath("pyrightconfig.json").write_text(settings)
    command = [sys.executable, "-m", "pyright", "-p", str(programs), "--pythonpath", sys.executable]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert completed.returncode == 0, completed.stdout + completed.stderr


RUNNABLE_EXAMPLES = [
    (name, text)
    for name, text in EXAMPLES
    if uses_glasscache(text) and not any(word in text for word in WORDS_OF_UNRUNNABLE_EXAMPLES)
]


@pytest.mark.parametrize(
    ("name", "text"), RUNNABLE_EXAMPLES, ids=[name for name, _ in RUNNABLE_EXAMPLES]
)
def test_an_example_of_the_documents_runs(
    name: str, text: str, server: Server, tmp_path: Path
) -> None:
    program = (PRELUDE + text).replace("127.0.0.1:11211", server.address)
    # How long a call may take is the reader's choice; a busy machine must not fail the test.
    program = re.sub(r"timeout=[0-9.]+", "timeout=30", program)
    program = re.sub(r"deadline\([0-9.]+\)", "deadline(30)", program)
    tmp_path.joinpath("best.strategy").write_text(STRATEGY)
    completed = subprocess.run(
        [sys.executable, "-W", "ignore:timeout", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
