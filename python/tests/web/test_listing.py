"""Which stored responses have a tag: a bounded scan, by functions and by the command."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from glasscache import AsyncClient, Client
from glasscache.errors import BadSetting, ServerUnavailable
from glasscache.server import find_command
from glasscache.web import CacheASGI, CacheSettings, Purger, Rules
from glasscache.web.purge import AsyncPurger

from .harness import Origin, send_request

if TYPE_CHECKING:
    from pathlib import Path

    from glasscache import Server

RULES = """
[[rule]]
name = "lamps"
when = { path = "/lamps/**" }
then = { ttl = 60, grace = 30, tags = ["lamp"] }
[[rule]]
name = "rest"
then = { ttl = 60, tags = ["rest"] }
"""
DEFAULT_SETTINGS = CacheSettings()


async def store_responses(
    client: AsyncClient, count: int, settings: CacheSettings = DEFAULT_SETTINGS
) -> None:
    """Store pages of two tags, one of them in two variants."""
    origin = Origin(lambda _: {"cache-control": "max-age=60", "vary": "x-plan"})
    cache = CacheASGI(origin, client, Rules.from_text(RULES), settings)
    for number in range(count):
        await send_request(cache, f"/lamps/{number}")
        await send_request(cache, f"/tables/{number}")
    await send_request(cache, "/lamps/0", fields={"x-plan": "gold"})
    await cache.settle()


@pytest.mark.parametrize("namespace", ["", "shop:"])
async def test_a_scan_finds_the_responses_of_a_tag(
    glasscache_server: Server, namespace: str
) -> None:
    async with AsyncClient(glasscache_server.address, timeout=5, namespace=namespace) as client:
        await client.flush()
        await store_responses(client, 30)
        await store_responses(client, 5, CacheSettings(namespace="other"))
        purger = AsyncPurger(client, Rules.from_text(RULES))
        lamp_urls = sorted(f"shop.example/lamps/{number}" for number in range(30))
        listing = await purger.list_tag("lamp")
        assert listing.urls == lamp_urls
        assert listing.is_complete
        assert listing.keys_scanned >= 60
        assert (await purger.list_tag("never")).urls == []
        bounded_listing = await purger.list_tag("lamp", urls_max=7)
        assert (len(bounded_listing.urls), bounded_listing.is_complete) == (7, False)
        assert not (await purger.list_tag("lamp", keys_max=3)).is_complete
        await purger.tag("lamp", soft=True)
        assert (await purger.list_tag("lamp")).urls == lamp_urls  # stale ones are still served
        await purger.prefix("shop.example/lamps/1")
        assert len((await purger.list_tag("lamp")).urls) == 19
        await purger.tag("lamp")
        assert (await purger.list_tag("lamp")).urls == []
        assert len((await purger.list_tag("rest")).urls) == 30


def test_the_command_lists_and_purges(glasscache_server: Server, tmp_path: Path) -> None:
    async def prepare() -> None:
        async with AsyncClient(glasscache_server.address, timeout=5) as client:
            await client.flush()
            await store_responses(client, 3)

    asyncio.run(prepare())
    (tmp_path / "rules.toml").write_text(RULES)
    common_arguments = [
        "--server",
        glasscache_server.address,
        "--rules",
        str(tmp_path / "rules.toml"),
    ]

    def run_web_command(*arguments: str) -> str:
        command = [find_command(), "web", *arguments, *common_arguments]
        environment = {**os.environ, "GLASSCACHE_PYTHON": sys.executable}
        completed = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment
        )
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    assert run_web_command("tag", "lamp").splitlines() == [
        f"shop.example/lamps/{number}" for number in range(3)
    ]
    assert "a hit" in run_web_command("explain", "http://shop.example/lamps/1")
    assert run_web_command("purge", "--tag", "lamp") == "purged\n"
    assert run_web_command("tag", "lamp") == ""


def test_a_server_that_does_not_list_its_keys_is_named() -> None:
    with (
        Client("127.0.0.1:1", timeout=1) as client,
        pytest.raises(ServerUnavailable, match=":1 fail"),
    ):
        Purger(client).list_tag("lamp")


@pytest.mark.parametrize(
    "wrong_settings",
    [
        {"namespace": ""}, {"namespace": "x" * 101}, {"max_bytes": -1}, {"lease": 0}, {"wait": -1},
        {"early": -0.1}, {"purge_token": ""},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused_by_name(wrong_settings: dict[str, object]) -> None:
    with pytest.raises(BadSetting, match=next(iter(wrong_settings))):
        CacheSettings(**wrong_settings)  # type: ignore[arg-type]
