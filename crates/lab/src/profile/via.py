#!/usr/bin/env python3
"""Time the calls of a Python client of memcached, for `glasscache profile --via`.

Reads one JSON request from each line of stdin and writes one JSON reply: fill, read, clear, reconnect. Run as
`python3 via.py CLIENT TARGET SEED PROTOCOL`, where the target is HOST:PORT or the path of a
socket and the protocol `auto` or `binary`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import time
from typing import Any


def connect(client_name: str, address: str, protocol: str) -> Any:
    """Return a client of this kind with get, set, delete and get_many."""
    host, _, port = address.rpartition(":")
    is_unix = "/" in address
    if client_name == "pylibmc":
        client = importlib.import_module("pylibmc").Client(
            [f"/{address.lstrip('/')}" if is_unix else address], binary=protocol == "binary"
        )
        client.get_many = client.get_multi
        return client
    if client_name == "pymemcache":
        return importlib.import_module("pymemcache.client.base").Client(
            address if is_unix else (host, int(port))
        )
    if client_name == "glasscache":
        return importlib.import_module("glasscache").Client(address, protocol=protocol)
    msg = f"{client_name} is not a known client: there are glasscache, pylibmc and pymemcache"
    raise ImportError(msg)


def disconnect(client: Any) -> None:
    """Close the connections of a client."""
    close = getattr(client, "disconnect_all", None) or client.close
    close()


def make_items(cell: dict[str, int], seed: str) -> dict[str, bytes]:
    """Return the keys and random bytes of a cell."""
    (kind, number), *_ = cell.items()
    count, length = (1, number) if kind == "bytes" else (number, 10)
    keys = [f"glasscache-profile:{seed}:{kind}:{number}:{index}" for index in range(count)]
    return {key: hashlib.shake_128(key.encode()).digest(length) for key in keys}


def read(client: Any, cell: dict[str, int], seed: str, call_count: int) -> dict[str, Any]:
    """Return the time of each call in nanoseconds, and how many values were absent or wrong."""
    expected = make_items(cell, seed)
    keys, times_ns, wrong_values = list(expected), [], 0
    clock = time.perf_counter_ns
    if "bytes" in cell:
        (key, value), *_ = expected.items()
        for _ in range(call_count):
            begin = clock()
            received = client.get(key)
            times_ns.append(clock() - begin)
            wrong_values += received != value
    else:
        for _ in range(call_count):
            begin = clock()
            received = client.get_many(keys)
            times_ns.append(clock() - begin)
            wrong_values += sum(received.get(key) != expected[key] for key in keys)
    return {"latencies_ns": times_ns, "wrong": wrong_values}


def handle_request(client: Any, request: dict[str, Any], seed: str) -> Any:
    """Return the reply to one request."""
    cell = request["cell"]
    if request["do"] == "fill":
        for key, value in make_items(cell, seed).items():
            try:
                stored = client.set(key, value)
            except Exception as error:  # each client has errors of its own
                if "large" in str(error).lower() or "too big" in str(error).lower():
                    return False
                raise
            if stored is False:
                return False
        return True
    if request["do"] == "reconnect":
        return True
    if request["do"] == "clear":
        for key in make_items(cell, seed):
            client.delete(key)
        return True
    return read(client, cell, seed, request["calls"])


def read_part_seconds(client: Any) -> dict[str, float]:
    """Return the seconds that our client counted for each part of its reads."""
    sums: dict[str, float] = {}
    for row in (
        client.stats()["by_size"] if type(client).__module__.startswith("glasscache") else []
    ):
        for part, seconds in row["seconds"].items():
            sums[part] = sums.get(part, 0.0) + seconds
    return sums


def main() -> int:
    """Serve requests until stdin ends."""
    client_name, address, seed, protocol = sys.argv[1:5]
    try:
        client = connect(client_name, address, protocol)
    except ImportError as error:
        sys.stdout.write(
            json.dumps({"error": f"{sys.executable} cannot import {client_name}: {error}"}) + "\n"
        )
        return 1
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "reconnect":
                disconnect(client)
                client = connect(client_name, address, protocol)
            parts_before = read_part_seconds(client)
            reply: dict[str, Any] = {"result": handle_request(client, request, seed)}
            parts_after = read_part_seconds(client).items()
            reply["parts"] = {
                part: seconds - parts_before.get(part, 0.0) for part, seconds in parts_after
            }
        except Exception as error:  # noqa: BLE001 each client has errors of its own
            reply = {"error": f"{client_name}: {type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
