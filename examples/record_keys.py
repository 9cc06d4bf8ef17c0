"""Record the keys that clients read from a running server, as a key stream that `glasscache curve` reads.

Usage: python examples/record_keys.py HOST:PORT SECONDS > keys.csv; without arguments it records a server of
its own. It uses the command `watch` of memcached 1.6 and glasscache, and writes hashes of the keys.
"""

from __future__ import annotations

import hashlib
import socket
import sys
import threading
import time
from contextlib import ExitStack
from typing import TextIO
from urllib.parse import unquote_to_bytes

from glasscache import Client, Server


def record(address: str, seconds: float, out: TextIO) -> int:
    """Write a line for each get until the time is over, and return how many there were."""
    host, _, port = address.rpartition(":")
    out.write("time,key,size,op\n")
    get_count = 0
    sizes: dict[str, str] = {}
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"watch fetchers mutations\r\n")
        deadline = time.monotonic() + seconds
        incomplete_line = b""
        connection.settimeout(0.1)
        while time.monotonic() < deadline:
            try:
                received = connection.recv(65536)
            except TimeoutError:
                continue
            if not received:
                break
            *lines, incomplete_line = (incomplete_line + received).split(b"\n")
            for line in lines:
                fields = dict(part.split("=", 1) for part in line.decode().split() if "=" in part)
                if "key" not in fields:
                    continue
                if fields.get("size", "0") != "0":
                    sizes[fields["key"]] = fields["size"]
                if fields["type"] == "item_get":
                    key_digest = hashlib.blake2b(
                        unquote_to_bytes(fields["key"]), digest_size=8
                    ).digest()
                    key_hash = int.from_bytes(key_digest, "big")
                    time_us = int(float(fields["ts"]) * 1e6)
                    out.write(f"{time_us},{key_hash},{sizes.get(fields['key'], '')},get\n")
                    get_count += 1
    return get_count


def main() -> None:
    """Record the server that is named, or a server of this program's own with a few reads."""
    if sys.argv[2:]:
        address, seconds = sys.argv[1:3]
        get_count = record(address, float(seconds), sys.stdout)
        print(f"{get_count:,} gets recorded", file=sys.stderr)
        return
    with ExitStack() as stack:
        server = stack.enter_context(Server())
        cache = stack.enter_context(Client(server.address, timeout=1, on_error="miss"))
        cache.set("user:17", "Ada", ttl=60)
        delayed_reads = threading.Timer(0.3, lambda: cache.get_many(["user:17", "user:18"]))
        delayed_reads.start()
        record(server.address, 1.0, sys.stdout)
        delayed_reads.join()


if __name__ == "__main__":
    main()
