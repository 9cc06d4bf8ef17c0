"""README and guides: commands print the documented output, links resolve, figures equal the kept results."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from documents import (
    DOCUMENTS,
    README,
    ROOT,
    ConsoleCommand,
    broken_links,
    code_blocks,
    console_commands,
)
from glasscache.server import find_command

WORDS_MAX = 700
FIGURES_MAX = 6
PROGRAMS_NOT_RUN = {
    "apt-get",
    "cargo",
    "curl",
    "export",
    "glasscache",
    "helm",
    "install",
    "make",
    "openssl",
    "pip",
    "podman",
    "python3",
    "ssh",
    "systemctl",
    "tar",
}
"""What `sh` blocks begin with: they install, or need another machine, so they are not run."""

PRELUDE = r"""
glasscache() { # As root a server needs -u, and a busy machine needs more than a second.
    case "$1" in
        serve) set -- "$@" -p "$TEST_PORT"; [ "$(id -u)" = 0 ] && set -- "$@" -u root ;;
        set|get|keys|stats|why) set -- "$@" --timeout-ms 30000 ;;
    esac
    command glasscache "$@"
}
# A reader waits until the server listens, and until there is something to see.
wait_until_listening() {
    for _ in $(seq 600); do command glasscache ping && [ -s "$1" ] && return; sleep 0.05; done
} >"ping.out" 2>&1
wait_until_busy() {
    for _ in $(seq 600); do
        gets=$(command glasscache stats --all | awk '$1 == "cmd_get" { print $2 }')
        [ "${gets:-0}" -gt 1000 ] && return
        sleep 0.1
    done
}
# A function in the background is a shell, whose program does not end with it.
trap 'for job in $(jobs -p); do pkill -P "$job"; kill "$job"; done 2>/dev/null' EXIT
"""


def script_of_commands(commands: list[ConsoleCommand]) -> str:
    """Return a script that runs every command, its output behind a line `@@number`."""
    lines = [PRELUDE]
    for number, command in enumerate(commands):
        lines.append(f"printf '\\n@@{number}\\n'")
        if not command.command_line.endswith("&"):
            lines.append(f"{{ {command.command_line}\n}} 2>&1")
            continue
        output_file = f"background.{number}"
        lines.append(f"{command.command_line[:-1].rstrip()} >{output_file} 2>&1 &")
        lines.append(
            f"wait_until_listening {output_file}; cat {output_file}"
            if " serve" in command.command_line
            else "wait_until_busy"
        )
    return "\n".join(lines) + "\n"


def free_port() -> int:
    with socket.socket() as reserved_socket:
        reserved_socket.bind(("127.0.0.1", 0))
        port: int = reserved_socket.getsockname()[1]
        return port


def path_in_checkout(document: Path) -> str:
    return str(document.relative_to(ROOT))


DOCUMENTS_WITH_COMMANDS = [
    document for document in DOCUMENTS if console_commands(document.read_text())
]
LONG_DOCUMENTS = {"which-items", "memory"}
"""Those whose commands simulate for longer than those of all others take together."""


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, marks=[pytest.mark.long] if document.stem in LONG_DOCUMENTS else [])
        for document in DOCUMENTS_WITH_COMMANDS
    ],
    ids=path_in_checkout,
)
def test_the_commands_of_a_document_print_what_it_shows(document: Path, tmp_path: Path) -> None:
    port_text = str(free_port())
    commands = console_commands(document.read_text().replace("11211", port_text))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    program_folders = [
        str(Path(find_command()).parent),
        str(Path(sys.executable).parent),
        os.environ["PATH"],
    ]
    completed = subprocess.run(
        ["bash", "-c", script_of_commands(commands)],  # noqa: S607 - the reader's own
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": os.pathsep.join(program_folders),
            "GLASSCACHE_SERVER": f"127.0.0.1:{port_text}",
            "TEST_PORT": port_text,
            "COLUMNS": "200",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    outputs = re.split(r"\n@@\d+\n", completed.stdout)[1:]
    assert len(outputs) == len(commands), completed.stdout + completed.stderr
    unexpected_outputs = [
        f"$ {command.command_line}\n{output}\n---- shown in {path_in_checkout(document)}:\n"
        + "\n".join(command.expected_lines)
        for command, output in zip(commands, outputs, strict=True)
        if not command.is_printed_by(output)
    ]
    assert not unexpected_outputs, "\n\n".join(unexpected_outputs)


def test_readme_and_the_guides_have_commands() -> None:
    names = {document.stem for document in DOCUMENTS_WITH_COMMANDS}
    assert names >= {"README", "first-hour", "memory", "which-items", "production"}


def test_a_command_that_prints_something_else_is_noticed() -> None:
    command = ConsoleCommand("echo", ["1 of ... hit"])
    assert command.is_printed_by("1 of 22 hit\n")
    assert not command.is_printed_by("2 of 22 hit\n")
    assert ConsoleCommand("echo", ["1 hit"], numbers_vary=True).is_printed_by("2,000.5 hit\n")
    assert not ConsoleCommand("echo", ["1 hit"], numbers_vary=True).is_printed_by("2 missed\n")


@pytest.mark.parametrize("document", DOCUMENTS, ids=path_in_checkout)
def test_blocks_that_are_not_run_are_about_installing_or_another_machine(document: Path) -> None:
    if "decisions" in document.parts:
        return
    for block in code_blocks(document.read_text(), "sh"):
        programs = {line.split()[0].rpartition("/")[2] for line in block.text.splitlines() if line}
        assert programs <= PROGRAMS_NOT_RUN, (
            f"run it: mark the block as console, not as sh: {programs - PROGRAMS_NOT_RUN}"
        )


def test_no_relative_link_is_broken() -> None:
    assert broken_links(DOCUMENTS) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text(
        "# A title: with `code` & more\n\n```sh\n# no heading\n```\n"
    )
    page.write_text(
        "[fine](other.md#a-title-with-code--more) [fine](https://example.com) [fine](#here)\n"
        "[lost](gone.md) [lost](other.md#no-heading) `[code](gone.md)` ![lost](gone.png)\n\n## Here\n"
    )
    assert [line.split(": ")[1] for line in broken_links([page])] == [
        "gone.md",
        "other.md#no-heading",
        "gone.png",
    ]


def test_readme_is_short_and_has_few_figures_and_a_picture() -> None:
    text = README.read_text()
    assert len(text.split()) <= WORDS_MAX
    table = text.partition("<!-- figures:")[2].partition("<!-- end of figures -->")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert 0 < len(rows) <= FIGURES_MAX
    picture = ROOT / "docs" / "pictures" / "search.png"
    assert 0 < picture.stat().st_size <= 200_000


needs_sources = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").is_file(),
    reason="this is not a checkout: nothing to install from",
)


@needs_sources
def test_what_readme_installs_can_be_installed() -> None:
    """Without the builds, which take minutes: what `make wheel` and a release do."""
    (block,) = code_blocks(README.read_text(), "sh")
    pip, cargo, podman = [line.partition("  ")[0].split() for line in block.text.splitlines()]
    assert pip[:2] == ["pip", "install"]
    options = "--dry-run --no-deps --no-build-isolation --quiet --disable-pip-version-check"
    dry_run_command = [sys.executable, "-m", "pip", "install", *options.split(), *pip[2:]]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    completed = subprocess.run(
        dry_run_command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert cargo[:3] == ["cargo", "install", "--path"]
    manifest = ROOT / cargo[3] / "Cargo.toml"
    options = "metadata --no-deps --offline --format-version=1 --manifest-path"
    cargo_command = ["cargo", *options.split(), str(manifest)]
    metadata = subprocess.run(cargo_command, capture_output=True, check=True)
    packages = json.loads(metadata.stdout)["packages"]
    targets = [
        target["name"]
        for package in packages
        for target in package["targets"]
        if package["manifest_path"] == str(manifest) and "bin" in target["kind"]
    ]
    assert targets == ["glasscache"]
    assert (ROOT / podman[podman.index("-f") + 1]).is_file()


def run_figures_script(*arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    figures_command = [sys.executable, str(ROOT / "scripts" / "figures"), *arguments]
    environment = {**os.environ, "FIGURES_ROOT": str(root)}
    return subprocess.run(
        figures_command, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def checkout_copy(tmp_path: Path) -> Path:
    """A copy of the figures, to be changed."""
    shutil.copytree(ROOT / "bench", tmp_path / "bench")
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    shutil.copy(README, tmp_path)
    shutil.copy(ROOT / "docs" / "reference" / "figures.md", tmp_path / "docs" / "reference")
    return tmp_path


def test_the_page_of_figures_and_readme_match_the_kept_results() -> None:
    completed = run_figures_script("--check")
    assert completed.returncode == 0, completed.stdout


def test_every_missed_figure_is_listed_with_its_reason() -> None:
    completed = run_figures_script("--kept")
    assert completed.returncode == 0, completed.stderr


def test_a_missed_figure_that_is_not_listed_fails(checkout_copy: Path) -> None:
    missed_file = checkout_copy / "bench" / "missed.toml"
    missed_figure = re.search(r'^what = "(.*)"$', missed_file.read_text(), re.MULTILINE)
    assert missed_figure is not None
    missed_file.write_text(
        missed_file.read_text().replace(missed_figure[0], 'what = "a figure that is met"')
    )
    completed = run_figures_script("--kept", root=checkout_copy)
    assert completed.returncode == 1
    assert f"missed, and not listed in bench/missed.toml: {missed_figure[1]}" in completed.stderr
    assert "listed in bench/missed.toml, and not missed: a figure that is met" in completed.stderr


def test_a_page_of_figures_that_is_out_of_date_is_noticed(checkout_copy: Path) -> None:
    assert run_figures_script("--check", root=checkout_copy).returncode == 0
    figures_file = checkout_copy / "bench" / "figures" / "speed.toml"
    figures_file.write_text(figures_file.read_text().replace("<= 0.95", "<= 0.90"))
    completed = run_figures_script("--check", root=checkout_copy)
    assert completed.returncode == 1
    assert "docs/reference/figures.md" in completed.stdout
    assert run_figures_script("--write", root=checkout_copy).returncode == 0
    assert run_figures_script("--check", root=checkout_copy).returncode == 0
