"""The command line of the HTTP cache: explain and purge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glasscache.web import CacheWSGI, Rules
from glasscache.web.__main__ import main

from web.test_wsgi import Origin, send_request

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from glasscache import Client, Server

RULES = """
[[rule]]
name = "pages"
when = { path = "/p/**" }
then = { ttl = 60, grace = 30, tags = ["page"] }
[[rule]]
name = "admin"
when = { path = "/admin/**" }
then = { bypass = true }
"""


def test_explain_prints_what_decides_and_what_is_stored(
    glasscache_client: Client,
    glasscache_server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    common_arguments = [
        "--server",
        glasscache_server.address,
        "--rules",
        str(tmp_path / "rules.toml"),
    ]
    cache = CacheWSGI(Origin(), glasscache_client, Rules.from_text(RULES))

    def explain(url: str, *more_arguments: str) -> str:
        assert (
            main(["explain", f"http://shop.example{url}", *common_arguments, *more_arguments]) == 0
        )
        return capsys.readouterr().out

    assert "nothing: a miss" in explain("/p/a")
    send_request(cache, "/p/a")
    explanation = explain("/p/a")
    for expected_text in (
        "rule        rule 'pages' (line 2)",
        "ttl         60 (rule 'pages')",
        "stored      a hit",
        "of 60 s",
        "tags        page",
    ):
        assert expected_text in explanation
    assert "bypass: rule" in explain("/admin/x")
    assert "method" in explain("/p/a", "-X", "POST")
    assert main(["purge", "--tag", "page", *common_arguments]) == 0
    assert "purged: a miss" in explain("/p/a")
    assert main(["explain", "/p/a", *common_arguments]) == 2
    assert "absolute" in capsys.readouterr().err
    assert main(["explain", "http://a/", "--server", "127.0.0.1:1"]) == 3
