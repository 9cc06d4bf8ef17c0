"""The examples at the top of the checkout run and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from glasscache import Server

FOLDER = Path(__file__).parents[2] / "examples"
EXPECTED_OUTPUTS = {
    "language_models": "microdollars saved",
    "look_aside": "ms for 10 profiles",
    "one_request": "one multi-get",
    "record_keys": "time,key,size,op",
    "visitors": "items had to be made",
}
"""What each example prints, among other things."""

EXAMPLES = sorted(FOLDER.glob("*.py"))


def test_every_example_has_an_expected_output() -> None:
    assert {example.stem for example in EXAMPLES} == EXPECTED_OUTPUTS.keys()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, server: Server) -> None:
    completed = subprocess.run(
        [sys.executable, str(example), server.address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert EXPECTED_OUTPUTS[example.stem] in completed.stdout
