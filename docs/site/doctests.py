"""Shows the examples in docstrings as code.

The package writes them as plain doctests, which Markdown takes for quotes.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^>>> .*\n?(?:^(?!>>> |\s*$).*\n?)*)+", re.MULTILINE)


def fence_doctests(text: str) -> str:
    """Return a docstring with a fence around each of its examples."""
    return DOCTEST.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)


class Doctests(griffe.Extension):
    """Changes each docstring as it is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Fence the examples of one object's docstring."""
        del kwargs
        if obj.docstring and ">>> " in obj.docstring.value:
            obj.docstring.value = fence_doctests(obj.docstring.value)
