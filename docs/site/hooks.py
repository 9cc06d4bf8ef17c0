"""What MkDocs does not do by itself: pages from outside of `docs`, and sections that list a folder.

Files at the top of the checkout (`PROJECT_PAGES`) become pages. Any other file that a page links to, such as
an example or a kept result, is copied beside the pages. Links are written as they work in the checkout and
rewritten here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PROJECT_PAGES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "docs/concurrency.md": "concurrency.md",
    "docs/dependencies.md": "dependencies.md",
    "examples/README.md": "project/examples.md",
}
"""What the section Project lists, in this order, and where it is in the site."""

WIDE_PAGES = {"reference/figures.md", "reference/values.md", "refuted.md"}
"""Pages whose tables need the room of the table of contents."""

FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<open>\]\()(?P<target>[^)\s#:]+)(?P<rest>(?:#[^)\s]*)?\))")


def site_uri(file: Path) -> str:
    """Return where a file of the checkout is in the site."""
    name = file.relative_to(ROOT).as_posix()
    if name in PROJECT_PAGES:
        return PROJECT_PAGES[name]
    return name.removeprefix("docs/") if file.is_relative_to(DOCS) else f"files/{name}"


def linked_files_outside_docs(text: str, folder: Path) -> set[Path]:
    """Return the files that a text links to and that are not in `docs`."""
    targets = {(folder / match["target"]).resolve() for match in LINK.finditer(FENCE.sub("", text))}
    return {file for file in targets if file.is_file() and not file.is_relative_to(DOCS)}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the sections that are a folder."""
    for section in config.nav or []:
        for title, folder in section.items() if isinstance(section, dict) else ():
            if folder == "project/":
                section[title] = list(PROJECT_PAGES.values())
            elif isinstance(folder, str) and folder.endswith("/"):
                names = sorted(file.name for file in (DOCS / folder).glob("*.md"))
                names.sort(key=lambda name: name != "index.md")
                section[title] = [folder + name for name in names]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is outside of `docs`: the project's pages, and each file that a page links to."""
    documents = [*DOCS.rglob("*.md"), *(ROOT / name for name in PROJECT_PAGES)]
    linked = set[Path]().union(
        *(
            linked_files_outside_docs(document.read_text(), document.parent)
            for document in documents
        )
    )
    linked |= {ROOT / name for name in PROJECT_PAGES}
    for file in sorted(linked):
        uri = site_uri(file)
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links for the site."""
    del config, files
    if page.file.src_uri in WIDE_PAGES:
        page.meta["hide"] = ["toc"]
    source = Path(page.file.abs_src_path or "").resolve()
    page_folder = Path(page.file.src_uri).parent

    def rewrite_link(match: re.Match[str]) -> Any:
        file = (source.parent / match["target"]).resolve()
        if not file.is_file():
            return match[0]
        return match["open"] + os.path.relpath(site_uri(file), page_folder) + match["rest"]

    fence_end, parts = 0, list[str]()
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(rewrite_link, markdown[fence_end : fence.start()]), fence[0]]
        fence_end = fence.end()
    parts.append(LINK.sub(rewrite_link, markdown[fence_end:]))
    return "".join(parts)
