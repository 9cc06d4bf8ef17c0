"""The course catalogue: a tree of topics in SQLite, each of which takes a query of milliseconds.

A topic's key is its path: `topic:0/3/7` is the eighth topic of the fourth of the first subject.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = 20_000
REVIEWS = 20_000
"""Rows in a table without an index by topic, which makes the query of a topic slow, so that a cache pays."""

BRANCHES = ((10, 16), (6, 16), (4, 14), (2, 12), (0, 9), (0, 5))
"""Fewest and most topics below one, by depth; the last pair holds for all depths beyond."""

WORDS = ["topics", "of", "a", "course", "are", "read", "by", "many", "changed", "few", "people"]


def key_of(path: str) -> str:
    """Return the key under which a topic is cached."""
    return f"topic:{path}"


def parent_of(key: str) -> str | None:
    """Return the key of the topic above; None for a subject."""
    return key.rpartition("/")[0] or None


def ancestors(path: str) -> list[str]:
    """Return the paths above a topic, from its subject on."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def create(file: Path, topic_count: int = TOPICS, seed: int = 1) -> None:
    """Write the database."""
    rng = random.Random(seed)  # noqa: S311 - a catalogue to repeat
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.executescript(
            "CREATE TABLE topics (path TEXT PRIMARY KEY, parent TEXT, title TEXT, body TEXT);"
            "CREATE INDEX by_parent ON topics (parent);"
            "CREATE TABLE reviews (topic TEXT, stars INTEGER)"
        )
        paths = _tree_paths(topic_count, rng)
        rows = (
            (path, path.rpartition("/")[0], f"Topic {path}", _random_text(rng)) for path in paths
        )
        database.executemany("INSERT INTO topics VALUES (?, ?, ?, ?)", rows)
        reviews = (
            (rng.choice(paths), rng.randint(1, 5)) for _ in range(min(REVIEWS, 2 * topic_count))
        )
        database.executemany("INSERT INTO reviews VALUES (?, ?)", reviews)


def _tree_paths(count: int, rng: random.Random) -> list[str]:
    """Return the paths of a tree, level by level."""
    paths: list[str] = []
    level = [""]
    depth = 0
    while level and len(paths) < count:
        children: list[str] = []
        branches_min, branches_max = BRANCHES[min(depth, len(BRANCHES) - 1)]
        for path in level:
            children += [
                f"{path}/{number}" if path else str(number)
                for number in range(rng.randint(branches_min, branches_max))
            ]
        paths += children
        level, depth = children, depth + 1
    return paths[:count]


def _random_text(rng: random.Random) -> str:
    word_count = min(600, int(rng.lognormvariate(4.6, 0.7)))
    return " ".join(rng.choice(WORDS) for _ in range(word_count))


class Catalogue:
    """Reads topics."""

    def __init__(self, file: Path) -> None:
        """Open the database; calls may come from several threads, one at a time."""
        self._database = sqlite3.connect(file, check_same_thread=False)
        self.query_count = 0

    def topic(self, path: str) -> dict[str, Any] | None:
        """Return a topic with its rating and the paths of the topics below it, or None."""
        self.query_count += 1
        row = self._database.execute(
            "SELECT title, body FROM topics WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            return None
        rating_query = "SELECT count(*), avg(stars) FROM reviews WHERE topic = ?"
        review_count, average_stars = self._database.execute(rating_query, (path,)).fetchone()
        return {
            "title": row[0],
            "body": row[1],
            "reviews": review_count,
            "stars": average_stars,
            "below": self.children_of(path),
        }

    def children_of(self, path: str) -> list[str]:
        """Return the paths of the topics below one; of the subjects, given an empty path."""
        rows = self._database.execute("SELECT path FROM topics WHERE parent = ?", (path,))
        return [child_path for (child_path,) in rows]

    def close(self) -> None:
        """Close the database."""
        self._database.close()
