"""Python clients side by side against one server: what each call of everyday costs.

    python bench/client.py --server 127.0.0.1:11211 [--repetitions 12] [--scale 1] [--cpu 0]
        [--rows TEXT,TEXT] [--keep FILE]

Server and clients should share one CPU (the server is started so by `make bench-client`): across
CPUs the wake-ups make any client vary threefold. Clients take turns within each repetition, a new
one first each time; a turn ends when the server has digested what was sent to it. A figure is the
median over repetitions, with the least and the most beside it; the ratio to ours is the median of
the ratios of neighbouring turns, which a busy machine disturbs least, with the middle half of them
and the demand beside it. CPU is the client's own, per call. A client that is not installed is left
out and named; one that takes longer than half a second for a call has one turn.

All rows take about five minutes at scale 1; how far it is goes to stderr. A run may take only some
(`--rows`): what is kept in FILE of other rows stays there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import logging
import math
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import glasscache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Row = tuple[Any, ...]
"""Name, calls a turn, (who, call) of each; and by who, what ends a turn where calls do not wait."""

DEMANDS = {
    "get 40 B": {"pylibmc": 1.05, "pymemcache": 1.5},
    "set 40 B": {"pylibmc": 1.05, "pymemcache": 1.5},
    "get 1 KB": {"pylibmc": 1.05, "pymemcache": 1.5},
    "set 1 KB": {"pylibmc": 1.05, "pymemcache": 1.5},
    "get 100 KB": {"pylibmc": 1.2, "pymemcache": 1.9},
    "get_many(100) 40 B": {"pylibmc": 1.7, "pymemcache": 6.0},
    "get_many(100) 1 KB": {"pylibmc": 1.4, "pymemcache": 3.8},
    "set_many(100) 40 B": {"pylibmc": 14.0, "pymemcache": 5.0},
    "set 1 KB without waiting": {"pylibmc": 1.0, "pymemcache": 5.0},
    "8 threads, get 1 KB": {"pylibmc": 1.0},
    "asyncio, 32 tasks, get 40 B": {"emcache": 7.0},
    "asyncio, 32 tasks, set 1 KB": {"emcache": 4.5},
    "140,000 ids in a list, write and read": {"pickle+zlib6": 20.0},
    "140,000 ids in an array, write and read": {"pickle+zlib6": 20.0},
    "140,000 ids in NumPy, write and read": {"pickle+zlib6": 20.0},
    "get 40 B: counting costs": {"costs off": 0.98},
    "get 40 B: a deadline per call": {"no deadline": 0.99},
}
"""Ours over the other's rate, at least. The first contender of a row is ours."""


def installed(name: str) -> Any:
    """Return a module, or None with a word on stderr."""
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed and left out", file=sys.stderr)
        return None


def open_clients(address: str) -> dict[str, Any]:
    """Return each client in its careful setting: waiting, TCP_NODELAY where it has the knob."""
    host, port = address.rsplit(":", 1)
    clients: dict[str, Any] = {
        "glasscache": glasscache.Client(
            address, timeout=5, codec=glasscache.Codec("pylibmc", objects="pickle")
        )
    }
    if pylibmc := installed("pylibmc"):
        clients["pylibmc"] = pylibmc.Client([address], behaviors={"tcp_nodelay": True})
    if installed("pymemcache"):
        from pymemcache import HashClient, serde
        from pymemcache.client.base import Client

        options = {"no_delay": True, "serde": serde.pickle_serde, "default_noreply": False}
        clients["pymemcache"] = Client((host, int(port)), timeout=5, **options)
        clients["pymemcache-hash"] = HashClient([(host, int(port))], timeout=5, **options)
    if memcache := installed("memcache"):
        clients["python-memcached"] = memcache.Client([address])
    if installed("meta_memcache"):
        from meta_memcache import CacheClient
        from meta_memcache.configuration import ServerAddress, connection_pool_factory_builder

        clients["meta-memcache"] = CacheClient.cache_client_from_servers(
            servers=[ServerAddress(host, int(port))],
            connection_pool_factory_fn=connection_pool_factory_builder(),
        )
    return clients


def setter(name: str, client: Any) -> Callable[[str, Any], Any]:
    """Return a client's set with its usual arguments."""
    if name == "meta-memcache":
        return lambda key, value: client.set(key, value, ttl=0)
    return client.set


def rows_of(clients: dict[str, Any]) -> Iterator[Row]:
    """Yield each row: its name, calls at scale 1, and what each client does."""
    ours = clients["glasscache"]
    values = {"40 B": b"x" * 40, "1 KB": os.urandom(1024), "100 KB": os.urandom(100_000)}
    thing = {"user": 17, "name": "Ada", "tags": ["a", "b"], "score": 1.5}
    for size, value in values.items():
        calls = 300 if size == "100 KB" else 2000
        for name, client in clients.items():  # each reads what it wrote itself: dialects differ
            key = f"one-{size.replace(' ', '')}-{name}"
            prepare(name, lambda put=setter(name, client), k=key, v=value: put(k, v))
        gets = [
            (n, lambda c=c, k=f"one-{size.replace(' ', '')}-{n}": c.get(k))
            for n, c in clients.items()
        ]
        yield f"get {size}", calls, gets
        sets = [(n, lambda put=setter(n, c), v=value: put("two", v)) for n, c in clients.items()]
        yield f"set {size}", calls, sets
    yield "get missing", 2000, [(n, lambda c=c: c.get("gone")) for n, c in clients.items()]
    yield (
        "set object",
        2000,
        [(n, lambda put=setter(n, c), k=f"obj-{n}": put(k, thing)) for n, c in clients.items()],
    )
    yield "get object", 2000, [(n, lambda c=c, k=f"obj-{n}": c.get(k)) for n, c in clients.items()]
    for size, word in (("40 B", "many"), ("1 KB", "kilo")):
        many = {f"{word}{n}": b"y" * len(values[size]) for n in range(100)}
        keys = list(many)
        ours.set_many(many)
        reads = {
            "pylibmc": "get_multi",
            "python-memcached": "get_multi",
            "meta-memcache": "multi_get",
        }
        yield (
            f"get_many(100) {size}",
            100,
            [
                (n, lambda f=getattr(c, reads.get(n, "get_many")), k=keys: f(k))
                for n, c in clients.items()
            ],
        )
        writes = {"pylibmc": "set_multi", "python-memcached": "set_multi"}
        yield (
            f"set_many(100) {size}",
            50,
            [
                (n, lambda f=getattr(c, writes.get(n, "set_many")), m=many: f(m))
                for n, c in clients.items()
                if n != "meta-memcache"
            ],
        )
    yield from special_rows(clients, values)


def special_rows(clients: dict[str, Any], values: dict[str, bytes]) -> Iterator[Row]:
    """Yield the rows that only some clients have."""
    ours = clients["glasscache"]
    address = next(iter(ours.stats()["servers"]))
    value = values["1 KB"]
    # Ours gathers such writes, the others send each at once: a turn ends with a call that waits, which
    # is answered when the server has processed all that was written before it.
    nowait = [("glasscache", lambda: ours.set("two", value, noreply=True))]
    finish = {"glasscache": lambda: ours.get("gone")}
    if "pylibmc" in clients:
        import pylibmc

        quiet = pylibmc.Client(
            [address], behaviors={"tcp_nodelay": True, "no_block": True, "_noreply": True}
        )
        nowait.append(("pylibmc", lambda: quiet.set("two", value)))
        finish["pylibmc"] = lambda: quiet.get("gone")
    if "pymemcache" in clients:
        plain = clients["pymemcache"]
        nowait.append(("pymemcache", lambda: plain.set("two", value, noreply=True)))
        finish["pymemcache"] = lambda: plain.get("gone")
    yield "set 1 KB without waiting", 2000, nowait, finish
    uncounted = glasscache.Client(address, timeout=5, costs=False)
    counted = glasscache.Client(address, timeout=5)
    ours.set("one", b"x" * 40)
    ours_counted = ("costs on", lambda: counted.get("one"))
    yield (
        "get 40 B: counting costs",
        2000,
        [ours_counted, ("costs off", lambda: uncounted.get("one"))],
    )
    with_deadline = ("deadline per call", lambda: uncounted.get("one", deadline=0.5))
    without = ("no deadline", lambda: uncounted.get("one"))
    yield "get 40 B: a deadline per call", 2000, [with_deadline, without]
    yield from number_rows(address)


def number_rows(address: str) -> Iterator[Row]:
    """Yield 140,000 ids of eight digits, as a list, an array and NumPy's, each against its pickle."""
    import array
    import pickle
    import random
    import zlib

    chance = random.Random(140_000)
    ids = [10_000_000 + chance.randrange(50_000_000) for _ in range(140_000)]
    forms: dict[str, Any] = {"a list": ids, "an array": array.array("q", ids)}
    if numpy := installed("numpy"):
        forms["NumPy"] = numpy.array(ids)
    ours = glasscache.Client(address, timeout=5)
    plain = glasscache.Client(address, timeout=5, dialect="raw")

    def packed(value: Any) -> Any:
        return ours.get("ids") if ours.set("ids", value) else None

    def pickled(value: Any, level: int | None) -> Any:
        body = pickle.dumps(value, 5)
        plain.set("ids", body if level is None else zlib.compress(body, level))
        body = plain.get("ids")
        return pickle.loads(body if level is None else zlib.decompress(body))

    for form, value in forms.items():
        contenders: list[tuple[str, Callable[[], Any]]] = [
            ("glasscache", lambda v=value: packed(v)),
            ("pickle+zlib6", lambda v=value: pickled(v, 6)),
            ("pickle+zlib1", lambda v=value: pickled(v, 1)),
        ]
        if form == "a list":  # an array's pickle is too long for a server's usual bound of 1 MB
            contenders.append(("pickle alone", lambda v=value: pickled(v, None)))
        yield f"140,000 ids in {form}, write and read", 3, contenders


def prepare(who: str, call: Callable[[], Any]) -> None:
    """Store what a row reads; a client that cannot is named, and no reason to stop."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        print(f"{who} failed before its row: {error!r}", file=sys.stderr)


TURN_S_MAX = 0.5
"""Longest turn; a client of which one call takes longer has only one."""


def affordable(call: Callable[[], Any], count: int) -> int:
    """Return how many calls to make: fewer where one takes long, 0 where one is too many."""
    begin = time.perf_counter()
    call()
    return min(count, int(TURN_S_MAX / (time.perf_counter() - begin)))


def measure(rows: Iterable[Row], repetitions: int, scale: float) -> Iterator[dict[str, Any]]:
    """Yield one record a row: ops/s (median, least, most) and CPU us per call of each client."""
    for name, calls, row_contenders, *finish in rows:
        contenders = list(row_contenders)
        slow: set[str] = set()
        finishers: dict[str, Callable[[], Any]] = finish[0] if finish else {}
        count = max(1, int(calls * scale))
        rates: dict[str, list[float]] = {who: [] for who, _ in contenders}
        cpu: dict[str, list[float]] = {who: [] for who, _ in contenders}
        for turn in range(repetitions):
            first = turn % len(contenders)
            for who, call in contenders[first:] + contenders[:first]:
                if who in slow:
                    rates[who].append(math.nan)
                    continue
                try:
                    done = affordable(call, count)
                    if done == 0:
                        slow.add(who)
                        done = 1
                    begin, used = time.perf_counter(), time.process_time()
                    for _ in range(done):
                        call()
                    spent = time.process_time() - used
                    finishers.get(who, int)()
                except Exception as error:  # noqa: BLE001 - a client that cannot is named, and no reason to stop
                    print(f"{name}: {who} failed: {error!r}", file=sys.stderr)
                    rates[who].append(math.nan)
                    continue
                rates[who].append(done / (time.perf_counter() - begin))
                cpu[who].append(spent / done * 1e6)
        yield record(name, rates, cpu)


def record(name: str, rates: dict[str, list[float]], cpu: dict[str, list[float]]) -> dict[str, Any]:
    """Return a row's figures; turns in which a client failed count for nothing."""
    ours = next(iter(rates.values()))

    def gains(each: list[float]) -> list[float]:
        return sorted(o / t for o, t in zip(ours, each, strict=False) if o / t > 0)

    clients = {}
    for who, turns in rates.items():
        good = [rate for rate in turns if rate > 0]
        if not good:
            continue
        ratios = gains(turns)
        clients[who] = {
            "ops_per_s": statistics.median(good),
            "least": min(good),
            "most": max(good),
            "cpu_us": statistics.median(cpu[who]) if cpu.get(who) else None,
            "ours_over_it": statistics.median(ratios) if ratios else None,
            "middle_half": [ratios[len(ratios) // 4], ratios[len(ratios) * 3 // 4]]
            if ratios
            else None,
            "demand": DEMANDS.get(name, {}).get(who),
        }
    return {"row": name, "load": os.getloadavg()[0], "clients": clients}


def in_turn(contenders: dict[str, Any], turn: int) -> list[tuple[str, Any]]:
    """Return the contenders, another one first each turn: who comes first has a cooler machine."""
    pairs = list(contenders.items())
    first = turn % len(pairs)
    return pairs[first:] + pairs[:first]


def threads_row(address: str, repetitions: int, scale: float) -> dict[str, Any]:
    """Return eight threads: one client of ours that they share, against a pylibmc client each."""
    shared = glasscache.Client(address, timeout=5)
    shared.set("one", os.urandom(1024))
    count = max(1, int(2000 * scale))
    contenders: dict[str, Callable[[], Callable[[str], Any]]] = {"glasscache": lambda: shared.get}
    if pylibmc := installed("pylibmc"):
        contenders["pylibmc"] = lambda: pylibmc.Client([address]).get
    rates: dict[str, list[float]] = {who: [] for who in contenders}
    pinned = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # on one CPU there is nothing to share
    for turn in range(repetitions):
        for who, make in in_turn(contenders, turn):
            gets = [make() for _ in range(8)]
            threads = [
                threading.Thread(target=lambda get=get: [get("one") for _ in range(count)])
                for get in gets
            ]
            begin = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rates[who].append(8 * count / (time.perf_counter() - begin))
    os.sched_setaffinity(0, pinned)
    return record(THREADS, rates, {})


WARM_UP_CALLS = (10_000, 100_000, 1_000_000)
THREADS = "8 threads, get 1 KB"
ASYNCIO = "asyncio, 32 tasks"


def warm_up_name(count: int) -> str:
    """Return the name of the row of so many calls."""
    return f"get 40 B, {count:,} calls of a new client"


def warm_up_row(clients: dict[str, Any], count: int, scale: float) -> dict[str, Any]:
    """Return reads of 40 B by new clients over so many calls: where the warm-up shows."""
    address = next(iter(clients["glasscache"].stats()["servers"]))
    host, port = address.rsplit(":", 1)
    glasscache.Client(address, timeout=5).set("one", b"x" * 40)
    contenders: dict[str, Callable[[], Any]] = {
        "glasscache": lambda: glasscache.Client(address, timeout=5).get
    }
    if pylibmc := installed("pylibmc"):
        contenders["pylibmc"] = lambda: pylibmc.Client([address]).get
    if installed("pymemcache"):
        from pymemcache.client.base import Client

        contenders["pymemcache"] = lambda: Client((host, int(port)), no_delay=True).get
    rates: dict[str, list[float]] = {}
    for who, make in contenders.items():
        get = make()
        begin = time.perf_counter()
        for _ in range(max(1, int(count * scale))):
            get("one")
        rates[who] = [count * scale / (time.perf_counter() - begin)]
    return record(warm_up_name(count), rates, {})


async def asyncio_rows(address: str, repetitions: int, scale: float) -> list[dict[str, Any]]:
    """Return 32 tasks that get and set, on the loop that runs this."""
    host, port = address.rsplit(":", 1)
    value, small = os.urandom(1024), b"x" * 40
    ours = glasscache.AsyncClient(address, timeout=5)
    await ours.set("one", small)
    gets: dict[str, Callable[[], Any]] = {"glasscache": lambda: ours.get("one")}
    sets: dict[str, Callable[[], Any]] = {"glasscache": lambda: ours.set("two", value)}
    closers = [ours.close]
    if emcache := installed("emcache"):
        other = await emcache.create_client([emcache.MemcachedHostAddress(host, int(port))])
        gets["emcache"] = lambda: other.get(b"one")
        sets["emcache"] = lambda: other.set(b"two", value)
        closers.append(other.close)
    if aiomcache := installed("aiomcache"):
        third = aiomcache.Client(host, int(port), pool_size=4)
        gets["aiomcache"] = lambda: third.get(b"one")
        sets["aiomcache"] = lambda: third.set(b"two", value)
        closers.append(third.close)
    count = max(1, int(100 * scale))

    async def work(call: Callable[[], Any]) -> None:
        for _ in range(count):
            await call()

    records = []
    for name, calls in (
        (f"{ASYNCIO}, get 40 B", gets),
        (f"{ASYNCIO}, set 1 KB", sets),
    ):
        rates: dict[str, list[float]] = {who: [] for who in calls}
        for turn in range(repetitions):
            for who, call in in_turn(calls, turn):
                begin = time.perf_counter()
                await asyncio.gather(*(work(call) for _ in range(32)))
                rates[who].append(32 * count / (time.perf_counter() - begin))
        records.append(record(name, rates, {}))
    for close in closers:
        await close()
    return records


def show(each: dict[str, Any]) -> None:
    """Print a row: calls a second, CPU, and ours over each other's."""
    print(each["row"])
    for index, (who, figures) in enumerate(each["clients"].items()):
        cpu = f"{figures['cpu_us']:9.1f} us CPU" if figures["cpu_us"] is not None else " " * 16
        gain, demand = figures["ours_over_it"], figures["demand"]
        ratio = ""
        if gain and index:
            low, high = figures["middle_half"]
            ratio = f"  ours is {gain:.3f} x ({low:.3f} to {high:.3f})"
            if demand:
                ratio += f", asked {demand:g}: {'met' if gain >= demand else 'MISSED'}"
        size, unit = (1e3, "k/s") if figures["ops_per_s"] >= 1e3 else (1, "/s ")
        spread = f"({figures['least'] / size:.1f} to {figures['most'] / size:.1f})"
        line = f"  {who:18} {figures['ops_per_s'] / size:9.2f} {unit} {spread:18} {cpu}{ratio}"
        print(line, flush=True)


def main() -> None:
    """Run every row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--server", default="127.0.0.1:11211")
    parser.add_argument("--repetitions", type=int, default=12)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--cpu", type=int, help="pin this process to one CPU")
    parser.add_argument("--rows", default="", help="only rows whose name has one of these texts")
    parser.add_argument("--keep", metavar="FILE", type=Path, help="write all figures as JSON")
    arguments = parser.parse_args()
    if arguments.cpu is not None:
        os.sched_setaffinity(0, {arguments.cpu})
    logging.disable(logging.CRITICAL)  # meta-memcache logs whole values
    clients = open_clients(arguments.server)
    for each in every_row(clients, arguments):
        show(each)
        if arguments.keep:
            keep(arguments.keep, each, circumstances(arguments))


def keep(file: Path, each: dict[str, Any], around: dict[str, Any]) -> None:
    """Put a row into the file, in the place of an older one of its name."""
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    names = [row["row"] for row in rows]
    if each["row"] in names:
        rows[names.index(each["row"])] = each
    else:
        rows.append(each)
    file.write_text(json.dumps({**around, "rows": rows}, indent=1) + "\n")


def circumstances(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the figures depend on."""
    from importlib import metadata

    peers = ("pylibmc", "pymemcache", "python-memcached", "meta-memcache", "emcache", "aiomcache")
    versions = {}
    for peer in peers:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[peer] = metadata.version(peer)
    return {
        "name": "clients",
        "date": time.strftime("%Y-%m-%d"),
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "repetitions": arguments.repetitions,
        "scale": arguments.scale,
        "clients": versions,
    }


def every_row(clients: dict[str, Any], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the record of each chosen row as soon as it is measured, and say how far it is."""
    options = (arguments.repetitions, arguments.scale)
    texts = arguments.rows.split(",")
    parts: list[tuple[str, Callable[[], Iterable[dict[str, Any]]]]] = [
        (row[0], lambda row=row: measure([row], *options)) for row in rows_of(clients)
    ]
    parts += [
        (warm_up_name(count), lambda count=count: [warm_up_row(clients, count, arguments.scale)])
        for count in WARM_UP_CALLS
    ]
    parts.append((THREADS, lambda: [threads_row(arguments.server, *options)]))
    parts.append((ASYNCIO, lambda: asyncio.run(asyncio_rows(arguments.server, *options))))
    chosen = [part for name, part in parts if any(text in name for text in texts)]
    begin = time.monotonic()
    for done, part in enumerate(chosen, 1):
        yield from part()
        spent = time.monotonic() - begin
        left = spent / done * (len(chosen) - done)
        print(f"{done} of {len(chosen)}, {spent:.0f} s, some {left:.0f} s left", file=sys.stderr)


if __name__ == "__main__":
    main()
