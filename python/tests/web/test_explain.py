"""The command line of the HTTP cache: explain and purge."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from glasscache.server import find_command
from glasscache.web import CacheASGI, CacheWSGI, Rules
from glasscache.web.__main__ import main

from web.harness import Origin as AsgiOrigin
from web.harness import send_request as send_asgi_request
from web.test_wsgi import Origin, send_request

if TYPE_CHECKING:
    from pathlib import Path

    from glasscache import AsyncClient, Client, Server

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


@pytest.mark.parametrize("mount", ["/shop", "/shop/", "/b\u00fccher"])
@pytest.mark.parametrize("interface", ["asgi", "wsgi"])
async def test_explain_finds_what_a_mounted_application_stores(
    interface: str,
    mount: str,
    glasscache_client: Client,
    glasscache_server: Server,
    client: AsyncClient,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, prefix = f"{mount.rstrip('/')}/{interface}", mount.rstrip("/")
    if interface == "wsgi":
        script_name = prefix.encode().decode("latin-1")
        cache = CacheWSGI(Origin(), glasscache_client)
        send_request(cache, f"/{interface}", SCRIPT_NAME=script_name)
    else:
        await send_asgi_request(CacheASGI(AsgiOrigin(), client), path, root_path=prefix)
    url, server = f"http://shop.example{path}", f"--server={glasscache_server.address}"
    assert main(["explain", url, server, "--mount", mount]) == 0
    assert "stored      a hit" in capsys.readouterr().out
    assert main(["explain", url, server]) == 0
    assert "nothing: a miss" in capsys.readouterr().out
    assert main(["explain", url, server, "--mount", "/sho"]) == 2
    assert "'/sho' is not where" in capsys.readouterr().err


def run_command(*arguments: str) -> tuple[int, str, str]:
    completed = subprocess.run(
        [find_command(), "web", *arguments],
        env={**os.environ, "GLASSCACHE_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    return completed.returncode, completed.stdout, completed.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["-h"],
        ["explain", "--help"],
        ["explain", "--json", "-h"],
        ["purge", "--tag", "a", "--url", "b"],
        ["purge", "--soft"],
        ["tag"],
        ["tag", "a", "--keys-max", "many"],
        ["explain", "/lamps"],
        ["explain", "http://a/", "--site-version", "2", "-s", "127.0.0.1:1"],
        ["unknown"],
        [],
    ],
)
def test_the_command_passes_its_arguments_on(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code = 0
    try:
        exit_code = main(arguments)
    except SystemExit as error:
        exit_code = error.code if isinstance(error.code, int) else 1
    captured = capsys.readouterr()
    assert run_command(*arguments) == (exit_code, captured.out, captured.err)
    assert exit_code or "usage: glasscache web" in captured.out
