"""Measures the HTTP cache under uvicorn: misses at once, stale responses, a large stream, a hit's CPU.

Usage: measure.py [misses] [stream] [hit]; without a name all. Starts its own cache server and uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

from glasscache import AsyncClient, Server

HERE = Path(__file__).parent
GIB = 1 << 30
CHUNK = bytes(64 << 10)


async def origin(scope, receive, send):
    """The application: /slow takes 200 ms, /big streams a GiB, /calls tells how often /slow ran."""
    path = scope["path"]
    headers = [(b"content-type", b"text/html"), (b"etag", b'"v1"')]
    if path.startswith("/slow"):
        async with AsyncClient(os.environ["STORE"], timeout=5) as client:
            await client.incr("calls", initial=1)
        await asyncio.sleep(0.2)
        headers.append((b"cache-control", b"max-age=2, stale-while-revalidate=60"))
        body = b"slow"
    elif path == "/big":
        headers += [(b"content-length", b"%d" % GIB), (b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(GIB // len(CHUNK)):
            await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    elif path == "/memory":
        body = b"%d" % resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    elif path == "/cpu":
        body = b"%.6f" % time.process_time()
    else:
        headers.append((b"cache-control", b"max-age=600"))
        body = b"x" * 2000
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def cached():
    from glasscache.web import CacheASGI, CacheSettings

    return CacheASGI(
        origin,
        AsyncClient(os.environ["STORE"], timeout=5),
        settings=CacheSettings(max_bytes=2 << 30),
    )


class Servers:
    """Some uvicorn processes of one application."""

    def __init__(self, store: str, count: int, app: str) -> None:
        self.ports, self._processes = [], []
        for _ in range(count):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--log-level", "error",
                       "--no-access-log", *(["--factory"] if "cached" in app else [])]  # fmt: skip
            environment = {**os.environ, "STORE": store, "PYTHONPATH": str(HERE)}
            self._processes.append(subprocess.Popen(command, env=environment))
            self.ports.append(port)
        for port in self.ports:
            for _ in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)

    def __enter__(self):
        return self.ports

    def __exit__(self, *_):
        for process in self._processes:
            process.terminate()
            process.wait(10)


async def fetch(port: int, path: str) -> tuple[bytes, float, float]:
    """Return the last bytes of a response, and the seconds to its first and last byte."""
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    last = await reader.read(1 << 16)
    first = time.perf_counter() - begin
    while more := await reader.read(1 << 20):
        last = more
    writer.close()
    return last, first, time.perf_counter() - begin


def quantile(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(part * len(times)))] * 1000


async def misses(store: str) -> None:
    with Servers(store, 4, "measure:cached") as ports:
        for port in ports:
            await fetch(port, "/warm")
        client = AsyncClient(store, timeout=5)
        times = await asyncio.gather(*(fetch(ports[n % 4], "/slow") for n in range(200)))
        ended = [one[2] for one in times]
        print(f"200 misses over 4 processes, origin 200 ms: {await client.get('calls')} fetch, "
              f"p50 {quantile(ended, 0.5):.0f} ms, p99 {quantile(ended, 0.99):.0f} ms")  # fmt: skip
        await asyncio.sleep(3)
        times = await asyncio.gather(*(fetch(ports[n % 4], "/slow") for n in range(200)))
        ended = [one[2] for one in times]
        await asyncio.sleep(0.5)
        print(f"200 requests at once for the stale response: {await client.get('calls')} fetches in all, "
              f"p50 {quantile(ended, 0.5):.1f} ms, p99 {quantile(ended, 0.99):.1f} ms")  # fmt: skip
        one_by_one = [(await fetch(ports[n % 4], "/slow"))[2] for n in range(200)]
        print(f"one after the other: p99 {quantile(one_by_one, 0.99):.1f} ms")
        await client.close()


async def stream(store: str) -> None:
    for app in ("measure:origin", "measure:cached"):
        with Servers(store, 1, app) as (port,):
            await fetch(port, "/warm")
            before = int((await fetch(port, "/memory"))[0])
            firsts = []
            for _ in range(3):
                _, first, whole = await fetch(port, "/big")
                firsts.append(first)
            after = int((await fetch(port, "/memory"))[0])
            print(f"{app}: first byte of 1 GiB {quantile(firsts, 0.5):.1f} ms, whole {whole:.1f} s, "
                  f"peak memory +{(after - before) / 1024:.1f} MiB")  # fmt: skip


async def hit(store: str) -> None:
    for app in ("measure:origin", "measure:cached"):
        with Servers(store, 1, app) as (port,):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            cpu = []
            for count in (200, 5000):
                for _ in range(count):
                    writer.write(b"GET /page HTTP/1.1\r\nHost: shop.example\r\n\r\n")
                    await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(2000)
                cpu.append(float((await fetch(port, "/cpu"))[0]))
            writer.close()
            print(f"{app}: {(cpu[1] - cpu[0]) / 5000 * 1e6:.0f} us of CPU a request")


def main() -> None:
    names = sys.argv[1:] or ["misses", "stream", "hit"]
    with Server(memory="3072M") as server:
        for name in names:
            asyncio.run({"misses": misses, "stream": stream, "hit": hit}[name](server.address))


if __name__ == "__main__":
    main()
