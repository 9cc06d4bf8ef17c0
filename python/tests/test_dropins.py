"""The drop-in modules against their originals: random programs, call by call, on the same servers.

A program runs twice: by the original alone, and each call by either client at random, on other servers. Every
result must be the same, an exception by its class. `DROPIN_CALLS` is the number of calls of each module.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import random
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import glasscache.compat.pylibmc as our_pylibmc
import glasscache.compat.pymemcache as our_pymemcache
import pytest
from glasscache import Server
from glasscache.compat.pymemcache import serde as our_serde

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS = int(os.environ.get("DROPIN_CALLS", "180"))
SEED = int(os.environ.get("DROPIN_SEED", "1"))
CALLS_OF_PROGRAM = 60

KEYS: list[Any] = ["a", "b", "c", b"d", b"f", "key:1", "e" * 100]
ODD_KEYS: list[Any] = [
    "with blank",
    "f" * 251,
    "größe",
    b"\x00zero",
    "tab\t",
    7,
    None,
    b"\xff\xfe",
]
VALUES: list[Any] = [
    b"bytes", b"", "text", "größe", 7, -3, 1 << 70, True, None, 2.5, ["list", 1], b"10", "5",
    "x" * 3000, b"y" * 1000,
]  # fmt: skip


SYNCHRONISING_KEYS = [f"~sync{number}" for number in range(24)]
"""Each of three servers has some."""


class Failure(NamedTuple):
    """What a call raised."""

    name: str


class Call(NamedTuple):
    """A call of a program: a method and its arguments."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


@pytest.fixture(scope="module")
def server_groups() -> Iterator[tuple[list[str], list[str]]]:
    """Three servers for the original, and three for both clients."""
    with contextlib.ExitStack() as stack:
        addresses = [stack.enter_context(Server()).address for _ in range(6)]
        yield addresses[:3], addresses[3:]


PYLIBMC_ODD_KEYS: list[Any] = ["f" * 251, "größe", 7, None]
"""Without those whose blanks or control characters become part of the next command there."""


class Chooser:
    """Draws the calls of programs."""

    def __init__(self, rng: random.Random, client: Any, program: int) -> None:
        self.rng, self.program, class_name = rng, program, type(client).__name__
        self.is_pymemcache = type(client).__module__.startswith("pymemcache")
        self.is_hash_client, self.has_defaults = class_name == "HashClient", class_name == "Client"

    def key(self) -> Any:
        if self.rng.random() < 0.05:
            odd_keys = ODD_KEYS if self.is_pymemcache else PYLIBMC_ODD_KEYS
            return self._own_key(self.rng.choice(odd_keys))
        return self._own_key(self.rng.choice(KEYS))

    def _own_key(self, key: Any) -> Any:
        """Return a key that no other program uses: others place theirs otherwise."""
        match key:
            case str():
                return f"{self.program}:{key}"
            case bytes():
                return b"%d:%b" % (self.program, key)
        return key

    def some_keys(self, odd_share: float = 0.2) -> list[Any]:
        keys = [self._own_key(key) for key in self.rng.sample(KEYS, self.rng.randrange(5))]
        return [*keys, self.key()] if self.rng.random() < odd_share else keys

    def split(self, required: list[Any], optional: dict[str, Callable[[], Any]]) -> tuple[Any, Any]:
        """Return arguments: some of the optional ones, by place or by name."""
        by_index = self.rng.randrange(len(optional) + 1) if self.rng.random() < 0.3 else 0
        names = list(optional)
        arguments = [*required, *(optional[name]() for name in names[:by_index])]
        options = {name: optional[name]() for name in names[by_index:] if self.rng.random() < 0.3}
        return tuple(arguments), options


def run_call(client: Any, call: Call, uniques: dict[Any, Any]) -> Any:
    """Make a call; return its result or what it raised. The uniques of CAS are those of this run."""
    arguments = call.arguments
    if call.method == "cas" and arguments[2] == "last":
        arguments = (*arguments[:2], uniques.get(arguments[0], 5), *arguments[3:])
    try:
        result = getattr(client, call.method)(*arguments, **call.options)
    except Exception as error:  # noqa: BLE001 - the other client must raise the same
        name = "ValueError" if isinstance(error, ValueError) else type(error).__name__
        # libmemcached reports a refused command as either, and of many calls any of their errors.
        is_any = name == "Error" or (call.method == "incr_multi" and name == "NotFound")
        return Failure("ClientError" if is_any else name)
    if call.method == "gets" and isinstance(result, tuple) and result[1] is not None:
        uniques[arguments[0]] = result[1]
        return result[0], type(result[1])
    if call.method in {"gets_many", "gets_multi"} or call.options.get("gets"):
        return {key: (value, type(unique)) for key, (value, unique) in result.items()}
    return result


def compare(
    make_clients: Callable[[bool], list[Any]],
    draw_call: Callable[[Chooser], Call],
    synchronise: Callable[[Any], None],
    rng: random.Random,
) -> list[tuple[Call, Any, Any, bool]]:
    """Run a program by the original alone and by either client; return the calls whose results differ."""
    (reference,), pair = make_clients(True), make_clients(False)
    reference_uniques: dict[Any, Any] = {}
    uniques: dict[Any, Any] = {}
    differences: list[tuple[Call, Any, Any, bool]] = []
    choose = Chooser(rng, reference, rng.randrange(1 << 30))
    for _ in range(CALLS_OF_PROGRAM):
        call, is_ours = (
            draw_call(choose),
            rng.random() < 0.7,
        )
        if not hasattr(reference, call.method):
            continue  # ours has more
        expected = run_call(reference, call, reference_uniques)
        client = pair[is_ours]
        found = run_call(client, call, uniques)
        synchronise(reference)
        synchronise(client)
        if call.method == "gets" and expected is None:
            expected = None, None  # of a HashClient with `ignore_exc`
        if getattr(reference, "ignore_exc", False) and isinstance(expected, dict):
            # One value that cannot be read hides those of its server there.
            common_keys = expected.keys() & found.keys()
            expected, found = (
                {key: values[key] for key in common_keys} for values in (expected, found)
            )
        has_many_servers = choose.is_hash_client or len(getattr(reference, "addresses", "")) > 1
        is_of_many_servers = has_many_servers and call.method.endswith(("_many", "_multi"))
        if is_of_many_servers and isinstance(expected, Failure) and isinstance(found, Failure):
            continue  # which item fails first depends on the addresses
        if expected != found or type(expected) is not type(found):
            differences.append((call, expected, found, is_ours))
    for client in (reference, *pair):
        client.disconnect_all()
    return differences


# pymemcache


PYMEMCACHE_METHODS = [
    "get", "get", "gets", "get_many", "get_multi", "gets_many", "set", "set", "add", "replace", "append",
    "prepend", "cas", "set_many", "set_multi", "touch", "delete", "delete_many", "delete_multi", "incr",
    "decr", "gets_multi",
]  # fmt: skip


def draw_pymemcache_call(choose: Chooser) -> Call:  # noqa: C901 - a table
    rng = choose.rng
    expire = lambda: rng.choice([0, 0, 100, 2_000_000_000, -1, "soon", 1.5])  # noqa: E731
    noreply = lambda: rng.choice([None, True, False])  # noqa: E731
    flags = lambda: rng.choice([None, 0, 1, 2, 16, 32, 65535])  # noqa: E731
    store = {"expire": expire, "noreply": noreply, "flags": flags}
    match rng.choice(PYMEMCACHE_METHODS):
        case "get" as method:
            arguments = choose.split([choose.key()], {"default": lambda: rng.choice([None, "?"])})
        case "gets" as method:
            # Only `Client` has defaults there.
            defaults = {"default": lambda: "?", "cas_default": lambda: None}
            arguments = choose.split([choose.key()], defaults if choose.has_defaults else {})
        case "get_many" | "get_multi" | "gets_many" as method:
            arguments = (choose.some_keys(),), {}
            if choose.is_hash_client and method != "gets_many" and rng.random() < 0.3:
                arguments[1]["gets"] = rng.choice([True, False])
        case "set" | "add" | "replace" | "append" | "prepend" as method:
            arguments = choose.split([choose.key(), rng.choice(VALUES)], store)
        case "cas" as method:
            unique = rng.choice(["last", "last", "last", 5, b"7", "9", "no number", b"-1"])
            store["noreply"] = lambda: False
            arguments = choose.split([choose.key(), rng.choice(VALUES), unique], store)
        case "set_many" | "set_multi" as method:
            # What cannot be sent ends the call; which servers have had theirs depends on the addresses.
            keys = (
                choose.some_keys(0)
                if choose.is_hash_client
                else [choose.key(), *choose.some_keys()]
            )
            known_values = [
                value for value in VALUES if not choose.is_hash_client or value != "größe"
            ]
            values = {key: rng.choice(known_values) for key in keys}
            arguments = choose.split([values], store)
        case "touch" as method:
            arguments = choose.split([choose.key()], {"expire": expire, "noreply": noreply})
        case "delete" as method:
            arguments = choose.split([choose.key()], {"noreply": noreply})
        case "delete_many" | "delete_multi" as method:
            keys = choose.some_keys(0 if choose.is_hash_client else 0.2)  # as of the stores
            arguments = choose.split([keys], {"noreply": noreply})
        case "incr" | "decr" as method:
            amount = rng.choice([1, 0, 5, 1 << 40, -1, "x", 1.5])
            arguments = choose.split([choose.key(), amount], {"noreply": lambda: False})
        case method:
            arguments = (choose.some_keys(),), {}
    return Call(method, *arguments)


def pymemcache_options(rng: random.Random, class_name: str) -> dict[str, Any]:
    """Draw the documented arguments of a client."""
    pool_options = {"max_pool_size": 4, "pool_idle_timeout": 60, "lock_generator": None}
    hash_options = {
        "use_pooling": rng.choice([True, False]),
        "retry_attempts": rng.choice([2, 0]),
        "retry_timeout": 1,
        "dead_timeout": 60,
    }
    return {
        **(pool_options if class_name != "Client" and rng.random() < 0.5 else {}),
        **(hash_options if class_name == "HashClient" else {}),
        # The original's HashClient takes a text and fails at the first call.
        "key_prefix": rng.choice(
            [b"", b"", b"shop:", b"p:" if class_name == "HashClient" else "p:"]
        ),
        "default_noreply": rng.choice([True, False]),
        "allow_unicode_keys": rng.choice([True, False]),
        # The original's pools forget it, and its HashClient hides what cannot be encoded.
        "encoding": rng.choice(["ascii", "utf-8"]) if class_name == "Client" else "ascii",
        "ignore_exc": class_name != "HashClient" and rng.choice([False, False, True]),
        "no_delay": True,
        "timeout": 5,
        "connect_timeout": 5,
    }


def test_pymemcache_call_by_call(server_groups: tuple[list[str], list[str]]) -> None:
    pymemcache = pytest.importorskip("pymemcache")
    from pymemcache import serde

    rng = random.Random(SEED)
    differences: list[Any] = []
    for _ in range(max(1, CALLS // CALLS_OF_PROGRAM)):
        class_name = rng.choice(["Client", "PooledClient", "HashClient", "HashClient"])
        options = pymemcache_options(rng, class_name)
        serde_name = rng.choice([None, "pickle_serde", "compressed_serde"])

        def make_clients(
            is_reference: bool,
            options: dict[str, Any] = options,
            class_name: str = class_name,
            serde_name: str | None = serde_name,
        ) -> list[Any]:
            servers = server_groups[not is_reference]
            target: Any = servers if class_name == "HashClient" else servers[0]
            modules = [(pymemcache, serde), (our_pymemcache, our_serde)][: 1 if is_reference else 2]
            return [
                getattr(module, class_name)(
                    target,
                    serde=None if serde_name is None else getattr(serde_module, serde_name),
                    **options,
                )
                for module, serde_module in modules
            ]

        found = compare(make_clients, draw_pymemcache_call, _synchronise_pymemcache, rng)
        differences += [(class_name, serde_name, options, *difference) for difference in found]
    assert not differences, _describe(differences)


# pylibmc


PYLIBMC_METHODS = [
    "get", "get", "gets", "get_multi", "get_multi", "set", "set", "add", "replace", "append", "prepend",
    "cas", "set_multi", "add_multi", "touch", "delete", "delete_multi", "incr", "decr", "incr_multi",
    "__contains__", "__getitem__",
]  # fmt: skip


def draw_pylibmc_call(choose: Chooser) -> Call:
    """Draw a call that pylibmc documents: most of its methods take no names."""
    rng = choose.rng
    time = lambda: rng.choice([0, 0, 100, 2_000_000_000])  # noqa: E731
    compress = {
        "min_compress_len": lambda: rng.choice([0, 10, 1000]),
        "compress_level": lambda: rng.choice([-1, 9]),
    }
    prefixes = {} if rng.random() < 0.5 else {"key_prefix": rng.choice(["p:", b"p:", ""])}
    match rng.choice(PYLIBMC_METHODS):
        case "get" as method:
            arguments = (choose.key(), *rng.choice([(), (None,), ("?",)])), {}
        case "gets" | "delete" | "__contains__" | "__getitem__" as method:
            arguments = (choose.key(),), {}
        case "get_multi" | "delete_multi" as method:
            arguments = (choose.some_keys(0.2 if method == "get_multi" else 0),), prefixes
        case "set" | "add" | "replace" as method:
            arguments = choose.split([choose.key(), rng.choice(VALUES)], {"time": time, **compress})
        case "append" | "prepend" as method:
            arguments = (choose.key(), rng.choice([b"bytes", "text", "größe"])), {}
        case "cas" as method:
            arguments = choose.split(
                [choose.key(), rng.choice(VALUES), rng.choice(["last", "last", 5])], {"time": time}
            )
        case "set_multi" | "add_multi" as method:
            values = {key: rng.choice(VALUES) for key in choose.some_keys()}
            positional, options = choose.split([values], {"time": time})
            options |= prefixes
            options |= {name: draw() for name, draw in compress.items() if rng.random() < 0.3}
            arguments = positional, options
        case "touch" as method:
            arguments = (choose.key(), time()), {}
        case "incr" | "decr" as method:
            arguments = (choose.key(), *rng.choice([(), (1,), (0,), (5,), (1 << 30,)])), {}
        case method:
            arguments = (choose.some_keys(),), prefixes | rng.choice([{}, {"delta": 2}])
    return Call(method, *arguments)


BEHAVIORS: list[dict[str, Any]] = [
    {},
    {"ketama": True},
    {"ketama_weighted": True},
    {"hash": "crc"},
    {"distribution": "consistent"},
    {"ketama": True, "cas": True},
    {"pickle_protocol": 2},
]


def test_pylibmc_call_by_call(server_groups: tuple[list[str], list[str]]) -> None:
    pylibmc = pytest.importorskip("pylibmc")
    rng = random.Random(SEED)
    differences: list[Any] = []
    for _ in range(max(1, CALLS // CALLS_OF_PROGRAM)):
        behaviors = {"cas": True, **rng.choice(BEHAVIORS)}
        servers_count = rng.choice([1, 3])

        def make_clients(
            is_reference: bool,
            behaviors: dict[str, Any] = behaviors,
            servers_count: int = servers_count,
        ) -> list[Any]:
            servers = server_groups[not is_reference][:servers_count]
            modules = [pylibmc, our_pylibmc][: 1 if is_reference else 2]
            return [module.Client(servers, behaviors=behaviors) for module in modules]

        found = compare(make_clients, draw_pylibmc_call, lambda _client: None, rng)
        differences += [(servers_count, behaviors, *difference) for difference in found]
    assert not differences, _describe(differences)


def test_of_two_wrong_arguments_the_same_is_reported(
    server_groups: tuple[list[str], list[str]],
) -> None:
    pymemcache = pytest.importorskip("pymemcache")
    modules: list[Any] = [pymemcache, our_pymemcache]
    for module, servers in zip(modules, server_groups, strict=True):
        client = module.Client(servers[0])
        with pytest.raises(module.exceptions.MemcacheIllegalInputError):
            client.cas(7, "value", "no number")
        with pytest.raises(TypeError):
            client.touch(7, 1.5)
        client.close()


@pytest.mark.parametrize("odd_key", [7, "f" * 251])
def test_an_incr_multi_with_an_impossible_key_changes_nothing(
    server_groups: tuple[list[str], list[str]], odd_key: Any
) -> None:
    pylibmc = pytest.importorskip("pylibmc")
    modules: list[Any] = [pylibmc, our_pylibmc]
    for module, servers in zip(modules, server_groups, strict=True):
        client = module.Client(servers)
        client.set("number", 7)
        with pytest.raises((TypeError, ValueError)):
            client.incr_multi(["number", odd_key])
        assert client.get("number") == 7
        client.disconnect_all()


def test_pylibmc_reads_the_flags_of_other_clients(
    server_groups: tuple[list[str], list[str]],
) -> None:
    pylibmc = pytest.importorskip("pylibmc")
    address = server_groups[0][0]
    host, port = address.split(":")
    writer = our_pymemcache.Client((host, int(port)), timeout=5)
    bodies = [b"7", b"text", b"\xff", zlib.compress(b"7"), pickle.dumps([7])]
    behaviors = {"cas": True}
    original, ours = (
        module.Client([address], behaviors=behaviors) for module in (pylibmc, our_pylibmc)
    )
    for flags, body in itertools.product([*range(40), 64, 256, 1 << 16, (1 << 32) - 1], bodies):
        writer.set("foreign", body, flags=flags)
        writer.set("mine", b"m")
        for method, arguments in [
            ("get", ("foreign",)), ("gets", ("foreign",)), ("get_multi", (["mine", "foreign", "nobody"],))
        ]:  # fmt: skip
            expected, found = (
                run_call(client, Call(method, arguments, {}), {}) for client in (original, ours)
            )
            assert expected == found, (flags, body, method, expected, found)


def _synchronise_pymemcache(client: Any) -> None:
    """Wait until each connection has done what was sent without a reply."""
    for server_client in getattr(client, "clients", {"": client}).values():
        server_client.get("~sync")
    client.get_many(SYNCHRONISING_KEYS)


def _describe(differences: list[Any]) -> str:
    lines = [f"{len(differences)} differences"]
    for difference in differences[:40]:
        *context, call, expected, found, is_ours = difference
        by = "ours" if is_ours else "the original after ours"
        lines.append(f"{call}: {expected!r:.200}, by {by} {found!r:.200}; {context}")
    return "\n".join(lines)
