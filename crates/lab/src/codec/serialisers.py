#!/usr/bin/env python3
"""Serialise the values of `glasscache codec`, and time the calls of the Python client.

Reads one JSON request from each line of stdin and writes one JSON reply: load, serialise,
calls_without_conversion, calls. The values follow the line of `load`, and the serialised values the reply to
`serialise`. Run as `python3 serialisers.py`.
"""

from __future__ import annotations

import array
import importlib
import json
import pickle
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable

SERIALISE_PASSES = 5
"""Passes in which each value is written and read; the median counts."""

CALL_SECONDS_MAX = 2.0
"""No pass of calls begins after this time."""

Serialiser = tuple["Callable[[Any], bytes]", "Callable[[bytes], Any]"]
"""The functions that write a value and read it."""


def load(kinds: list[str], lengths: list[int], pipe: BinaryIO) -> list[Any]:
    """Return the values that the command read."""
    values: list[Any] = []
    for kind, length in zip(kinds, lengths, strict=True):
        body = pipe.read(length)
        if kind == "object":
            values.append(json.loads(body))
        else:
            values.append(body.decode() if kind == "text" else body)
    return values


def find_serialiser(name: str) -> Serialiser:
    """Return the functions that write and read; raises ImportError without the package."""
    if name == "pickle":
        return lambda value: pickle.dumps(value, protocol=5), pickle.loads
    if name == "json":
        encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
        return lambda value: encoder.encode(value).encode(), json.loads
    if name == "orjson":
        orjson = importlib.import_module("orjson")
        return orjson.dumps, orjson.loads
    if name == "msgspec":
        module = importlib.import_module("msgspec").json
        return module.Encoder().encode, module.Decoder().decode
    if name == "msgpack":
        return msgpack_serialiser()
    return client_serialiser(name)


def msgpack_serialiser() -> Serialiser:
    """Return MessagePack by the package of that name, or by msgspec."""
    try:
        module = importlib.import_module("msgpack")
    except ImportError:
        module = importlib.import_module("msgspec").msgpack
        return module.Encoder().encode, module.Decoder().decode
    return module.packb, module.unpackb


def client_serialiser(name: str) -> Serialiser:
    """Return what our client writes, without compression."""
    package = importlib.import_module("glasscache")
    codec = package.Codec(compress=None, objects="msgpack" if name == "Codec msgpack" else "json")
    last_flags = [0]

    def write(value: Any) -> bytes:
        value = packable_numbers(value) if name == "packed" else value
        last_flags[0], body = codec.encode(value)
        return bytes(body)

    def read(body: bytes) -> Any:
        decoded = codec.decode(last_flags[0], body)
        return list(decoded) if name == "packed" else decoded

    return write, read


def packable_numbers(value: Any) -> Any:
    """Return a list of numbers as what the client packs; raises TypeError for anything else."""
    if not isinstance(value, list) or not value:
        raise TypeError("not every value is a list of numbers")
    if all(type(number) is int for number in value):
        return value
    if all(type(number) in (int, float) for number in value):
        return array.array("d", value)
    raise TypeError("not every value is a list of numbers")


def median(times_ns: list[int]) -> int:
    """Return the median."""
    return sorted(times_ns)[len(times_ns) // 2]


def serialise(name: str, values: list[Any]) -> tuple[dict[str, Any], list[bytes]]:
    """Return the times of writing and reading each value in nanoseconds, and the written values.

    Passes over all values, as an application has them: the same value again would be in the CPU's caches.
    """
    write, read = find_serialiser(name)
    clock = time.perf_counter_ns
    write_ns: list[list[int]] = [[] for _ in values]
    read_ns: list[list[int]] = [[] for _ in values]
    bodies = []
    for pass_index in range(SERIALISE_PASSES):
        for value_index, value in enumerate(values):
            begin = clock()
            body = write(value)
            middle = clock()
            decoded = read(body)
            end = clock()
            write_ns[value_index].append(middle - begin)
            read_ns[value_index].append(end - middle)
            if decoded != value:
                raise ValueError("a value came back as another one")
            if pass_index == 0:
                bodies.append(body)
    reply = {
        "write_ns": list(map(median, write_ns)),
        "read_ns": list(map(median, read_ns)),
        "lengths": list(map(len, bodies)),
    }
    return reply, bodies


def open_client(server: str, codec: dict[str, Any]) -> Any:
    """Return our client with a codec of these settings."""
    package = importlib.import_module("glasscache")
    return package.Client(server, codec=package.Codec(**codec), timeout=30)


def measure_calls_without_conversion(request: dict[str, Any]) -> dict[str, Any]:
    """Return the median times of sets and gets of bytes that need no conversion, over many keys."""
    times_ns: dict[str, list[int]] = {"set": [], "get": []}
    clock, value = time.perf_counter_ns, bytes(request["bytes"])
    keys = [f"{request['key']}{index}" for index in range(request["keys"])]
    with open_client(request["server"], {"dialect": "raw", "compress": None}) as cache:
        for pass_index in range(1 + request["passes"]):
            for key in keys:
                begin = clock()
                cache.set(key, value)
                middle = clock()
                cache.get(key)
                end = clock()
                if pass_index:
                    times_ns["set"].append(middle - begin)
                    times_ns["get"].append(end - middle)
        cache.delete_many(keys)
    return {"set_us": median(times_ns["set"]) / 1e3, "get_us": median(times_ns["get"]) / 1e3}


def measure_calls(request: dict[str, Any], values: list[Any]) -> dict[str, Any]:
    """Return the median times of sets and gets of the values, with a codec of these settings."""
    clock, wrong_values = time.perf_counter_ns, 0
    times_ns: dict[str, list[int]] = {"set": [], "get": []}
    keys = [f"{request['key']}{index}" for index in range(len(values))]
    with open_client(request["server"], request["codec"]) as cache:
        started = time.monotonic()
        for pass_index in range(request["passes"]):
            for key, value in zip(keys, values, strict=True):
                begin = clock()
                cache.set(key, value)
                middle = clock()
                decoded = cache.get(key)
                end = clock()
                wrong_values += decoded != value
                if pass_index:
                    times_ns["set"].append(middle - begin)
                    times_ns["get"].append(end - middle)
            if pass_index and time.monotonic() - started > CALL_SECONDS_MAX:
                break
        cache.delete_many(keys)
    return {
        "set_us": median(times_ns["set"]) / 1e3,
        "get_us": median(times_ns["get"]) / 1e3,
        "wrong": wrong_values,
    }


def main() -> None:
    """Reply to requests until stdin ends; Ctrl-C is for the command, which then closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe, out = sys.stdin.buffer, sys.stdout.buffer
    values: list[Any] = []
    for line in iter(pipe.readline, b""):
        request, bodies = json.loads(line), []
        try:
            match request["do"]:
                case "load":
                    values = load(request["kinds"], request["lengths"], pipe)
                    reply: dict[str, Any] = {}
                case "serialise":
                    reply, bodies = serialise(request["form"], values)
                case "calls_without_conversion":
                    reply = measure_calls_without_conversion(request)
                case _:
                    reply = measure_calls(request, values)
        except ImportError as error:
            reply = {"error": str(error), "is_absent": True}
        except Exception as error:  # noqa: BLE001 - each package has errors of its own
            reply = {"error": f"{type(error).__name__}: {error}", "is_absent": False}
        out.write(json.dumps(reply).encode() + b"\n" + b"".join(bodies))
        out.flush()


if __name__ == "__main__":
    main()
