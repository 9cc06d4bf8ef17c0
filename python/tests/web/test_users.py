"""No user gets another user's response: random requests of many users with cookies and credentials."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING, Any

from glasscache import AsyncClient
from glasscache.web import CacheASGI, Rules

from web.harness import Clock, Origin, send_request

if TYPE_CHECKING:
    from glasscache import Client, Server

USER_COUNT = 50
REQUEST_COUNT = int(os.environ.get("GLASSCACHE_TEST_REQUESTS", "1200"))
LAST_MODIFIED = "Mon, 01 Jan 2024 00:00:00 GMT"

PATHS: dict[str, tuple[dict[str, str], bool]] = {
    "/public": ({"cache-control": "max-age=5, stale-while-revalidate=5"}, False),
    "/tagged": ({"cache-control": "max-age=5", "etag": '"t"'}, False),
    "/private": ({"cache-control": "private, max-age=60"}, True),
    "/no-store": ({"cache-control": "no-store"}, True),
    "/nothing": ({}, True),
    "/heuristic": ({"last-modified": LAST_MODIFIED}, True),
    "/login": ({"set-cookie": "session=new", "last-modified": LAST_MODIFIED}, True),
    "/vary": ({"cache-control": "max-age=5", "vary": "Cookie, Authorization"}, True),
    "/vary-tag": (
        {"cache-control": "max-age=2", "vary": "cookie,authorization", "etag": "own"},
        True,
    ),
    "/no-cache": (
        {"cache-control": "no-cache", "etag": "own", "vary": "cookie, authorization"},
        True,
    ),
    "/ruled": ({}, True),
}
"""Path: fields of the response, and whether its body is the user's own."""

RULES = """
[[rule]]
name = "ruled"
when = { path = "/ruled" }
then = { ttl = 5, grace = 5, vary_on = ["cookie:session", "header:authorization"], tags = ["r"] }
"""


def user_of(fields: dict[str, str]) -> str:
    """Return who a request is from: its session, its credentials, or a visitor."""
    for part in fields.get("cookie", "").split("; "):
        if part.startswith("session="):
            return part[8:]
    return fields.get("authorization", "visitor")


def respond(call: dict[str, Any]) -> Any:
    headers, is_own = PATHS[call["path"]]
    user = user_of(call["fields"]) if is_own else "all"
    headers = dict(headers)
    if headers.get("etag") == "own":
        headers["etag"] = f'"{user}"'
    if "etag" in headers and call["fields"].get("if-none-match") == headers["etag"]:
        return 304, headers, b""
    return 200, headers, f"<{user}>{call['path']}".encode()


def random_fields(rng: random.Random) -> dict[str, str]:
    user_number = rng.randrange(USER_COUNT)
    fields: dict[str, str] = {}
    match rng.randrange(4):
        case 0:
            fields["cookie"] = f"theme=dark; session=user{user_number}"
        case 1:
            fields["authorization"] = f"user{user_number}"
        case 2:
            fields["cookie"] = f"session=user{user_number}"
            fields["cookie"] += "" if rng.random() < 0.5 else "; last=1"
        case _:
            pass
    if rng.random() < 0.1:
        fields["if-none-match"] = f'"user{rng.randrange(USER_COUNT)}"'
    if rng.random() < 0.1:
        fields["cache-control"] = rng.choice(
            ["no-cache", "max-age=1", "max-stale=9", "min-fresh=3"]
        )
    if rng.random() < 0.05:
        fields["range"] = "bytes=0-3"
    return fields


def test_no_user_gets_another_users_response(
    glasscache_client: Client, glasscache_server: Server
) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)

    async def main() -> dict[str, int]:
        async with AsyncClient(glasscache_server.address, timeout=5) as client:
            clock = Clock(time.time())
            cache = CacheASGI(Origin(respond), client, Rules.from_text(RULES))
            cache.shared.clock = clock

            async def request_once() -> None:
                path, fields = rng.choice(list(PATHS)), random_fields(rng)
                method = "HEAD" if rng.random() < 0.05 else "GET"
                reply = await send_request(cache, path, method, fields)
                expected_user = user_of(fields) if PATHS[path][1] else "all"
                whole_body = f"<{expected_user}>{path}".encode()
                if method == "HEAD":
                    return
                if reply.status == 304:
                    assert fields["if-none-match"] in {f'"{expected_user}"', '"t"'}
                elif reply.status == 206:
                    assert reply.body == whole_body[:4]
                elif method == "GET":
                    assert (reply.status, reply.body) == (200, whole_body), (
                        path,
                        fields,
                        reply.cache_status,
                    )

            for _ in range(REQUEST_COUNT // 10):
                await asyncio.gather(*(request_once() for _ in range(10)))
                clock.now += rng.random()
            await cache.settle()
            return dict(cache.counters)

    counters = asyncio.run(main())
    assert counters["hits"] > REQUEST_COUNT // 20, (seed, counters)
    assert counters["stored"] > 0
    assert not counters.get("store_errors")
