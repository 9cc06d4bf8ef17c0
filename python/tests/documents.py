"""Reading the project's Markdown: its code blocks, its links, and the anchors that links may name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

_FENCE = re.compile(
    r"(?P<marker><!-- numbers vary -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *#*$", re.MULTILINE)
_LOG_PREFIX = re.compile(r"^[-\d]+T[:.\d]+Z [a-z]+ ", re.MULTILINE)
"""What a line of the server's log begins with; on a terminal, which documents show, it does not."""
_BUILD = re.compile(r"(?<=\d\.\d\.\d)\+[0-9a-f]+")
"""The commit in the version of a build that ships."""
_NUMBER = re.compile(r"\d[\d.,]*")


class Block(NamedTuple):
    """A fenced block of a document."""

    language: str
    text: str
    numbers_vary: bool


@dataclass
class ConsoleCommand:
    """A command of a `console` block and its expected output."""

    command_line: str
    expected_lines: list[str] = field(default_factory=list)
    numbers_vary: bool = False

    def is_printed_by(self, output: str) -> bool:
        """Whether the output is what the document shows; `...` stands for anything."""
        expected = "\n".join(self.expected_lines)
        output = _BUILD.sub("", _LOG_PREFIX.sub("", output))
        expected, output = (" ".join(text.split()) for text in (expected, output))
        if self.numbers_vary:
            expected, output = _NUMBER.sub("0", expected), _NUMBER.sub("0", output)
        parts = [re.escape(part) for part in re.split(r" ?\.\.\. ?", expected)]
        return re.fullmatch(".*".join(parts), output) is not None


def code_blocks(text: str, language: str) -> list[Block]:
    """Return the blocks of one language."""
    blocks = [
        Block(match["language"], match["text"], match["marker"] is not None)
        for match in _FENCE.finditer(text)
    ]
    return [block for block in blocks if block.language == language]


def console_commands(text: str) -> list[ConsoleCommand]:
    """Return the commands of every `console` block of a document, in order."""
    commands: list[ConsoleCommand] = []
    for block in code_blocks(text, "console"):
        for line in block.text.splitlines():
            if line.startswith("$ "):
                commands.append(ConsoleCommand(line[2:], [], block.numbers_vary))
            else:
                commands[-1].expected_lines.append(line)
    return commands


def heading_anchors(text: str) -> set[str]:
    """Return the anchors of a document's headings, as GitHub and the site make them."""
    anchors: set[str] = set()
    for match in _HEADING.finditer(_FENCE.sub("", text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match["title"]).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        number = 1
        unique_anchor = anchor
        while unique_anchor in anchors:
            unique_anchor = f"{anchor}-{number}"
            number += 1
        anchors.add(unique_anchor)
    return anchors


def broken_links(documents: list[Path]) -> list[str]:
    """Return a line for each relative link that leads to no file, or to no heading of its document."""
    findings: list[str] = []
    for document in documents:
        text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", document.read_text()))
        for match in _LINK.finditer(text):
            target, _, anchor = match["target"].partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            path = (document.parent / target) if target else document
            if not path.exists():
                findings.append(f"{document.name}: {match['target']}: the file does not exist")
            elif anchor and anchor not in heading_anchors(path.read_text()):
                findings.append(f"{document.name}: {match['target']}: the heading does not exist")
    return findings
