"""Every table of the rules cookbook is read as rules, alone and with the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from glasscache.web import Rules

COOKBOOK = Path(__file__).parents[3] / "docs" / "guides" / "layers" / "rules.md"
TABLES = re.findall(r"```toml\n(.*?)```", COOKBOOK.read_text(encoding="utf-8"), re.DOTALL)


def test_the_cookbook_has_tables() -> None:
    assert len(TABLES) >= 8


@pytest.mark.parametrize("table", TABLES, ids=range(len(TABLES)))
def test_a_table_of_the_cookbook_is_read(table: str) -> None:
    assert Rules.from_text(table).rules
