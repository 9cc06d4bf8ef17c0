"""Decisions, glossary and recipes: each decision is indexed once, and what a recipe names exists."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from documents import ROOT, heading_anchors

if TYPE_CHECKING:
    from pathlib import Path

DECISIONS = ROOT / "docs" / "decisions"
INDEX = DECISIONS / "index.md"
CHAPTERS = sorted(set(DECISIONS.glob("*.md")) - {INDEX})
CHAPTERS_MAX = 12
TERMS_MAX = 100
REFUTED_MIN = 25

TABLES_BY_RECIPE = {
    "A client setting": "python/glasscache/_client_settings.py",
    "A server setting": "crates/cli/src/settings/table.rs",
    "A command": "crates/protocol/src/command/mod.rs",
    "A statistic": "crates/server/src/session/stats/glasscache.rs",
    "A policy": "crates/sim/src/policy/kind.rs",
    "A codec": "crates/client/src/value/compress.rs",
    "A trace format": "crates/sim/src/trace/mod.rs",
    "A subcommand": "crates/cli/src/args.rs",
}
"""Each recipe of CONTRIBUTING.md and the table in which its thing is listed."""

SECTION = re.compile(r"^## (?P<number>\d{4}): .+$", re.MULTILINE)
INDEX_LINE = re.compile(
    r"^- .+\? .+ \(\[(?P<number>\d{4})\]\((?P<chapter>[\w-]+\.md)#(?P<anchor>\S+)\)\)\.$"
)
MENTION = re.compile(
    r"decisions/(?P<chapter>[\w-]+\.md)(?:#|, )(?P<number>\d{4})(?: and (?P<other>\d{4}))?"
)
TERM_SEPARATOR = re.compile(r"[;,] ")
CODE_PATH = re.compile(r"`([\w.-]+/[\w./-]*)`")


def numbers_by_chapter() -> dict[str, list[str]]:
    return {chapter.name: SECTION.findall(chapter.read_text()) for chapter in CHAPTERS}


def section_of(document: Path, title: str) -> str:
    """Return the text of a section of the second level, without its title."""
    _, _, text = document.read_text().partition(f"\n## {title}\n")
    return text.partition("\n## ")[0]


def recipes() -> dict[str, str]:
    text = "\n" + section_of(ROOT / "CONTRIBUTING.md", "Recipes")
    parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def glossary_terms() -> list[str]:
    rows = re.findall(
        r"^\| ([^|]+) \| ", section_of(ROOT / "ARCHITECTURE.md", "Glossary"), re.MULTILINE
    )
    cells = [re.sub(r" ?\([^)]*\)", "", cell) for cell in rows if cell != "word"]
    return [term for cell in cells for term in TERM_SEPARATOR.split(cell)]


def test_decisions_are_in_few_chapters() -> None:
    assert 0 < len(CHAPTERS) <= CHAPTERS_MAX
    for chapter in CHAPTERS:
        headings = re.findall(r"^## .+$", chapter.read_text(), re.MULTILINE)
        assert len(headings) == len(numbers_by_chapter()[chapter.name]), (
            f"{chapter.name}: a heading of the second level is `## 0123: Title`"
        )


def test_each_decision_is_in_the_index_once_as_a_question() -> None:
    numbers = [number for found in numbers_by_chapter().values() for number in found]
    lines = [line for line in INDEX.read_text().splitlines() if line.startswith("- ")]
    indexed = [INDEX_LINE.match(line) for line in lines]
    assert [line for line, match in zip(lines, indexed, strict=True) if match is None] == []
    assert Counter(match["number"] for match in indexed if match) == Counter(numbers)
    for match in indexed:
        assert match is not None
        assert match["anchor"].startswith(match["number"])
        assert match["anchor"] in heading_anchors((DECISIONS / match["chapter"]).read_text())


def test_each_mention_of_a_decision_names_its_chapter() -> None:
    listing = subprocess.run(
        ["git", "grep", "-n", "-E", "decisions/"],  # noqa: S607 - of the developer
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if not listing.stdout:
        pytest.skip("this is not a checkout")
    numbers = numbers_by_chapter()
    wrong: list[str] = []
    for line in listing.stdout.splitlines():
        wrong += [line for _ in re.findall(r"decisions/\d{4}", line)]
        for match in MENTION.finditer(line):
            mentioned = [number for number in (match["number"], match["other"]) if number]
            if not set(mentioned) <= set(numbers.get(match["chapter"], [])):
                wrong.append(line)
    assert wrong == []


def test_what_was_refuted_has_figures_and_a_section() -> None:
    text = (ROOT / "docs" / "refuted.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and "| tried |" not in line]
    assert len(rows) >= REFUTED_MIN
    for row in rows:
        assert re.search(r"\| \[\d{4}\]\(decisions/[\w-]+\.md#\S+\) \|$", row), row


def test_the_glossary_is_short_and_has_each_term_once() -> None:
    terms = glossary_terms()
    assert len(terms) <= TERMS_MAX
    assert {term: count for term, count in Counter(terms).items() if count > 1} == {}


def test_there_is_a_recipe_for_each_common_change_and_it_begins_with_its_table() -> None:
    found = {title: CODE_PATH.search(text) for title, text in recipes().items()}
    assert {title: match and match[1] for title, match in found.items()} == TABLES_BY_RECIPE


@pytest.mark.parametrize("title", TABLES_BY_RECIPE)
@pytest.mark.skipif(not (ROOT / "crates").exists(), reason="this is not a checkout")
def test_the_files_of_a_recipe_exist(title: str) -> None:
    paths = CODE_PATH.findall(recipes()[title])
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert len(paths) > 2
    assert missing == []
