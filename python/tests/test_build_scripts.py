"""The scripts behind `make run` and `make test`: what they refuse, in a sentence, and who waits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPTS_DIR = Path(__file__).parents[2] / "scripts"
MANIFEST = '[workspace.package]\nrust-version = "1.95"\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in a path with a blank, with the scripts and no sources."""
    folder = tmp_path / "my checkout"
    shutil.copytree(SCRIPTS_DIR, folder / "scripts")
    (folder / "Cargo.toml").write_text(MANIFEST)
    return folder


# The disk of the machine that runs the tests decides nothing: it may be full after a build.
ROOMY_DISK = 'printf "h\\nd 9 9 99999999 9%% /\\n"'
FULL_DISK = 'printf "h\\nd 9 9 1000 9%% /\\n"'


def run_script(
    checkout: Path, *command: str, programs: dict[str, str], **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a script of the checkout where only the usual programs and these are on the path."""
    bin_dir = checkout / "bin"
    bin_dir.mkdir(exist_ok=True)
    usual = [
        "bash",
        "env",
        "cut",
        "sed",
        "sort",
        "head",
        "awk",
        "du",
        "dirname",
        "mkdir",
        "printf",
    ]
    programs = {"df": ROOMY_DISK, **programs}
    for name in [*usual, *programs]:
        (bin_dir / name).unlink(missing_ok=True)
    for name in usual:
        if found := shutil.which(name):
            (bin_dir / name).symlink_to(found)
    for name, text in programs.items():
        (bin_dir / name).unlink(missing_ok=True)
        (bin_dir / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (bin_dir / name).chmod(0o755)
    environment = {"PATH": str(bin_dir), **variables}
    script, *arguments = command
    return subprocess.run(
        [str(checkout / "scripts" / script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


CARGO = 'echo "cargo 1.95.0 (f2d3ce0bd 2026-03-21)"'
CC = "true"


@pytest.mark.parametrize(
    ("programs", "sentence"),
    [
        ({"cc": CC}, "glasscache needs Rust 1.95 or newer (cargo was not found): install it"),
        ({"cargo": CARGO}, "glasscache needs a C compiler (cc was not found): on Debian, apt-get"),
        (
            {"cargo": 'echo "cargo 1.94.1 (abc 2026-01-01)"', "cc": CC},
            "glasscache needs Rust 1.95 or newer, and cargo is 1.94.1: run 'rustup update stable'",
        ),
        (
            {"cargo": CARGO, "cc": CC, "df": FULL_DISK},
            "the build needs 3 GB on the disk of",
        ),
    ],
)
def test_what_a_build_lacks_is_one_sentence(
    checkout: Path, programs: dict[str, str], sentence: str
) -> None:
    result = run_script(checkout, "need-toolchain", "3", programs=programs)
    assert result.returncode == 2
    assert result.stderr.startswith(sentence)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("version", ["1.95.0", "1.100.2", "1.96.0-nightly"])
def test_a_new_toolchain_is_taken(checkout: Path, version: str) -> None:
    programs = {"cargo": f'echo "cargo {version} (f2d3ce0bd)"', "cc": CC}
    result = run_script(checkout, "need-toolchain", programs=programs)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("programs", "sentence"),
    [
        ({}, "the Python package needs Python 3.11 or newer (python3 was not found)"),
        (
            {"python3": '[ "$1" = -c ] && exit 1; echo Python 3.9.2'},
            "the Python package needs Python 3.11 or newer, and ",
        ),
    ],
)
def test_a_python_that_cannot_run_the_package_is_one_sentence(
    checkout: Path, programs: dict[str, str], sentence: str
) -> None:
    result = run_script(checkout, "need-python", programs=programs)
    assert result.returncode == 2
    assert result.stderr.startswith(sentence)
    assert result.stderr.count("\n") == 1


def test_without_the_module_venv_no_environment_is_begun(checkout: Path) -> None:
    python = 'case "$*" in *ensurepip*) exit 1;; esac; exit 0'
    result = run_script(checkout, "python-venv", programs={"python3": python, "cmp": "exit 1"})
    assert result.returncode == 2
    assert "on Debian, apt-get install python3-venv." in result.stderr
    assert not (checkout / ".venv").exists()


def test_an_environment_that_cannot_be_made_during_the_build_is_one_sentence_after_it(
    checkout: Path,
) -> None:
    programs = {
        "cargo": f'echo "$1" >>"{checkout}/steps"; [ "$1" != --version ] || {CARGO}',
        "cc": CC,
        "cmp": "exit 1",
        "python3": 'case "$*" in *ensurepip*) exit 1;; esac; exit 0',
        "setsid": 'exec "$@"',
    }
    result = run_script(checkout, "build-tests", programs=programs, TEST_BUILD="")
    assert result.returncode == 2
    assert "on Debian, apt-get install python3-venv." in result.stderr
    assert result.stderr.count("\n") == 1
    assert (checkout / "steps").read_text().split()[-1] == "build"


def test_packages_that_cannot_be_downloaded_are_one_sentence(checkout: Path) -> None:
    result = run_script(
        checkout, "cargo-build", programs={"cargo": "echo no network >&2; exit 101"}
    )
    assert result.returncode == 2
    assert result.stderr.startswith("the Rust packages could not be downloaded (build/fetch.log")
    assert result.stderr.count("\n") == 1
    assert (checkout / "build/fetch.log").read_text() == "no network\n"


def test_a_full_disk_is_named_after_a_failed_build(checkout: Path) -> None:
    programs = {
        "cargo": '[ "$1" = fetch ]',
        "df": FULL_DISK,
    }
    result = run_script(checkout, "cargo-build", programs=programs)
    assert result.returncode == 1
    assert result.stderr.startswith("the disk of")
    assert "make room, then run this again" in result.stderr


def test_a_second_make_waits_for_the_first_and_reports_it(checkout: Path) -> None:
    exclusive = str(checkout / "scripts/exclusive")
    environment = {k: v for k, v in os.environ.items() if k != "MAKE_EXCLUSIVE"}
    log = checkout / "log"
    started = checkout / "started"
    first = subprocess.Popen(
        [exclusive, "bash", "-c", f"touch '{started}'; sleep 1; echo first >>'{log}'"],
        env=environment,
    )
    while not started.exists():
        assert first.poll() is None
        time.sleep(0.01)
    second = subprocess.run(
        [exclusive, "bash", "-c", f"echo second >>'{log}'"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert first.wait() == 0
    assert "Another make is at work in this folder" in second.stderr
    assert log.read_text() == "first\nsecond\n"


def test_a_target_that_calls_another_does_not_wait_for_itself(checkout: Path) -> None:
    exclusive = str(checkout / "scripts/exclusive")
    environment = {k: v for k, v in os.environ.items() if k != "MAKE_EXCLUSIVE"}
    command = [exclusive, exclusive, "bash", "-c", "exit 7"]
    result = subprocess.run(command, env=environment, timeout=60, check=False)
    assert result.returncode == 7


HANGING_PROGRAM = """
import sys, time
print("test quick ... ok", flush=True)
print("test model::slow has been running for over 60 seconds", flush=True)
print("test model::fine has been running for over 60 seconds", flush=True)
print("test model::fine ... ok", flush=True)
time.sleep(600)
"""


def run_limited(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this text under the limit, which is over with the notice."""
    return subprocess.run(
        [sys.executable, SCRIPTS_DIR / "limit-tests", sys.executable, "-c", program],
        env=os.environ | {"TEST_SECONDS_MAX": "60"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_test_that_hangs_is_ended_by_its_name() -> None:
    result = run_limited(HANGING_PROGRAM)
    assert result.returncode == 124
    assert "ended: model::slow took longer than 60 s" in result.stdout
    assert "test quick ... ok" in result.stdout


def test_a_program_that_ends_keeps_its_output_and_code() -> None:
    result = run_limited("print('test a ... FAILED'); raise SystemExit(101)")
    assert result.returncode == 101
    assert result.stdout == "test a ... FAILED\n"
