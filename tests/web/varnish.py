"""The usual rules in our format and in VCL: the same hit or miss for each of 10,000 sequential requests.

Usage: varnish.py [--requests 10000] [--seed 1]. Needs the varnishd of Debian and a C compiler for its VCL.

Both cache the same application. Rules: leave the administration alone, one key for equivalent URLs, no
errors, TTLs by path, grace. No request is sent within 100 ms of the end of a TTL or of its grace, where both
outcomes are right.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from glasscache import AsyncClient, Server
from glasscache.web import CacheASGI, CacheSettings, Rules

TTLS_S = {"short": 2.0, "long": 5.0}
GRACE_S = 2.0
MARGIN_S = 0.1
RULES = """
[[rule]]
name = "administration"
when = { path_regex = "/admin(/.*)?" }
then = { bypass = true }
[[rule]]
name = "errors"
when = { status = ["4xx", "5xx"] }
then = { no_store = true }
[[rule]]
name = "URLs"
[rule.then]
canonicalise = { query_sort = true, query_drop = ["utm_*"], trailing_slash = "strip" }
pass_cookies = []
strip_cookies = true
[[rule]]
name = "short"
when = { path = "/short/**" }
then = { ttl = 2, grace = 2 }
[[rule]]
name = "long"
when = { path = "/long/**" }
then = { ttl = 5, grace = 2 }
"""
VCL = """
vcl 4.1;
import std;
backend default { .host = "127.0.0.1"; .port = "%d"; }
sub vcl_recv {
    if (req.method != "GET") { return (pass); }
    if (req.url ~ "^/admin(/|$|\\?)") { return (pass); }
    set req.url = regsuball(req.url, "([?&])utm_[a-z]+=[^&]*&?", "\\1");
    set req.url = regsub(req.url, "[?&]$", "");
    set req.url = std.querysort(req.url);
    set req.url = regsub(req.url, "/(\\?|$)", "\\1");
    unset req.http.Cookie;
    return (hash);
}
sub vcl_backend_response {
    unset beresp.http.Set-Cookie;
    if (beresp.status >= 400) {
        set beresp.ttl = 0s; set beresp.grace = 0s; set beresp.keep = 0s;
        return (deliver);
    }
    if (bereq.url ~ "^/short/") { set beresp.ttl = 2s; }
    if (bereq.url ~ "^/long/") { set beresp.ttl = 5s; }
    set beresp.grace = 2s;
    set beresp.keep = 0s;
    return (deliver);
}
sub vcl_deliver {
    set resp.http.X-Result = "miss";
    if (obj.hits > 0) { set resp.http.X-Result = "hit"; }
}
"""


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Respond with 404 if the path contains "/missing"; each response sets a cookie."""
    is_missing = "/missing" in scope["path"]
    body = scope["path"].encode()
    headers = [(b"content-length", b"%d" % len(body)), (b"set-cookie", b"seen=1"),
               (b"cache-control", b"max-age=1"), (b"content-type", b"text/plain")]  # fmt: skip
    await send(
        {"type": "http.response.start", "status": 404 if is_missing else 200, "headers": headers}
    )
    await send({"type": "http.response.body", "body": body})


class OurCache:
    """The middleware, called without a network."""

    def __init__(self, client: AsyncClient) -> None:
        settings = CacheSettings(early=False)  # Varnish has no early refresh
        self._cache = CacheASGI(application, client, Rules.from_text(RULES), settings)

    async def request(self, url: str, fields: dict[str, str]) -> str:
        path, _, query = url.partition("?")
        headers = [
            (b"host", b"shop.example"),
            *((name.encode(), value.encode()) for name, value in fields.items()),
        ]
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "scheme": "http",
                 "query_string": query.encode(), "headers": headers, "http_version": "1.1"}  # fmt: skip
        cache_status: list[bytes] = []

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                cache_status.extend(
                    value for name, value in message["headers"] if name == b"cache-status"
                )

        await self._cache(scope, None, send)  # type: ignore[arg-type]
        await self._cache.settle()
        return "hit" if cache_status and b"; hit" in cache_status[0] else "miss"


class Varnish:
    """A varnishd over one connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: Any = None

    async def request(self, url: str, fields: dict[str, str]) -> str:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        header_lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        writer.write(f"GET {url} HTTP/1.1\r\nHost: shop.example\r\n{header_lines}\r\n".encode())
        header = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(header.split("content-length: ")[1].split("\r\n")[0])
        await reader.readexactly(length)
        return header.split("x-result: ")[1].split("\r\n")[0]


class RequestPlan:
    """Random requests, none near the end of a TTL or a grace of its key."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._fetch_times: dict[str, tuple[float, float]] = {}
        """The times between which both caches fetched a key."""
        self._ambiguous_until: dict[str, float] = {}
        """When a key is over in both caches, of which one may have fetched it later than the other."""

    def next_request(self) -> tuple[str, str, dict[str, str]]:
        rng = self._rng
        url_kind = rng.choices(["short", "long", "missing", "admin"], [5, 5, 1, 1])[0]
        number = min(int(rng.paretovariate(0.6)), 120)
        path = f"/{url_kind}/{number}" if url_kind != "missing" else f"/short/missing{number}"
        query_pairs = [f"page={rng.randrange(2)}", f"sort={rng.choice('ab')}"]
        rng.shuffle(query_pairs)
        if rng.random() < 0.3:
            query_pairs.insert(rng.randrange(3), f"utm_source=x{rng.randrange(99)}")
        trailing_slash = "/" if rng.random() < 0.2 and url_kind != "admin" else ""
        key_pairs = sorted(pair for pair in query_pairs if not pair.startswith("utm"))
        fields = {"cookie": f"session={rng.randrange(9)}"} if rng.random() < 0.3 else {}
        key = f"{path}?{'&'.join(key_pairs)}" if url_kind in TTLS_S else ""
        return f"{path}{trailing_slash}?{'&'.join(query_pairs)}", key, fields

    def seconds_until_unambiguous(self, key: str) -> float:
        """Return the seconds after which a request for a key has one right outcome."""
        now = time.monotonic()
        if now < self._ambiguous_until.get(key, 0.0):
            return self._ambiguous_until[key] - now
        for earliest, latest in self._expiry_ranges(key):
            if earliest - MARGIN_S < now < latest + MARGIN_S:
                return latest + MARGIN_S - now
        return 0.0

    def _expiry_ranges(self, key: str) -> list[tuple[float, float]]:
        """Return the times between which a key's TTL ends in both caches, and its grace."""
        if key not in self._fetch_times:
            return []
        earliest, latest = self._fetch_times[key]
        ttl_s = TTLS_S[key.split("/")[1]]
        return [
            (earliest + ttl_s, latest + ttl_s),
            (earliest + ttl_s + GRACE_S, latest + ttl_s + GRACE_S),
        ]

    def record_request(self, key: str, started_at: float, ended_at: float) -> bool:
        """Record when a key was requested from both caches; return whether only one outcome was right then.

        It had two if the machine stopped the requests for so long that a TTL ended in between.
        """
        if not key:
            return True
        expiry_ranges = self._expiry_ranges(key)
        if any(earliest <= ended_at and started_at <= latest for earliest, latest in expiry_ranges):
            del self._fetch_times[key]
            self._ambiguous_until[key] = ended_at + TTLS_S[key.split("/")[1]] + GRACE_S + MARGIN_S
            return False
        if not expiry_ranges or started_at > expiry_ranges[0][1]:
            self._fetch_times[key] = started_at, ended_at
        return True


async def compare_results(
    options: argparse.Namespace, server_address: str, varnish_port: int
) -> int:
    plan, outcomes, differences, interrupted_count = (
        RequestPlan(options.seed),
        Counter[str](),
        [],
        0,
    )
    async with AsyncClient(server_address, timeout=5) as client:
        our_cache, varnish = OurCache(client), Varnish(varnish_port)
        for number in range(options.requests):
            url, key, fields = plan.next_request()
            await asyncio.sleep(plan.seconds_until_unambiguous(key))
            started_at = time.monotonic()
            our_result, varnish_result = (
                await our_cache.request(url, fields),
                await varnish.request(url, fields),
            )
            if "hit" in (our_result, varnish_result) and key:
                await asyncio.sleep(0.001)  # a refresh in the background ends
            if not plan.record_request(key, started_at, time.monotonic()):
                interrupted_count += 1
                continue
            outcomes[our_result] += 1
            if our_result != varnish_result:
                differences.append(f"{number}: {url}: {our_result}, Varnish {varnish_result}")
    print(f"{options.requests} requests: {outcomes['hit']} hits, {outcomes['miss']} misses, "
          f"{len(differences)} different; of {interrupted_count} a TTL ended in between")  # fmt: skip
    print("\n".join(differences[:20]))
    return 1 if differences else 0


def free_port() -> int:
    with socket.socket() as reserved_socket:
        reserved_socket.bind(("127.0.0.1", 0))
        return int(reserved_socket.getsockname()[1])


@contextlib.contextmanager
def listening_process(command: list[str], port: int) -> Any:
    discarded_output = subprocess.DEVNULL
    process = subprocess.Popen(
        command, cwd=Path(__file__).parent, stdout=discarded_output, stderr=discarded_output
    )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(10)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    varnishd_path = shutil.which("varnishd") or shutil.which(
        "varnishd", path="/usr/sbin:/usr/local/sbin"
    )
    if varnishd_path is None:
        print(
            "comparing with Varnish failed: there is no varnishd; on Debian, apt-get install varnish"
        )
        return 2
    origin_port, varnish_port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        vcl_file = Path(folder) / "rules.vcl"
        vcl_file.write_text(VCL % origin_port)
        Path(folder).chmod(0o755)
        vcl_file.chmod(0o644)
        uvicorn_command = [
            sys.executable,
            "-m",
            "uvicorn",
            "varnish:application",
            "--port",
            str(origin_port),
        ]
        varnishd_command = [
            varnishd_path, "-F", "-a", f"127.0.0.1:{varnish_port}", "-f", str(vcl_file),
            "-n", f"{folder}/work", "-s", "malloc,64m", "-p", "default_keep=0",
        ]  # fmt: skip
        with (
            listening_process(
                [*uvicorn_command, "--log-level", "error", "--no-access-log"], origin_port
            ),
            listening_process(varnishd_command, varnish_port),
        ):
            return asyncio.run(compare_results(options, server.address, varnish_port))


if __name__ == "__main__":
    sys.exit(main())
