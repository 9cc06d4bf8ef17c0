"""What `cached` refuses because it cannot tell it from another, and what a refresh stores."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client
from glasscache.cached import cached
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache import Server

_offline_client = Client("127.0.0.1:1", timeout=0.1, on_error="miss")


def _adder(amount: int) -> Callable[[int], int]:
    def add(number: int) -> int:
        return number + amount

    return add


def _self_calling() -> Callable[[int], int]:
    def factorial(number: int) -> int:
        return 1 if number < 2 else number * factorial(number - 1)

    return factorial


def _repeating(times: int) -> Callable[[Callable[[], int]], Callable[[], int]]:
    def decorate(function: Callable[[], int]) -> Callable[[], int]:
        @functools.wraps(function)
        def repeated() -> int:
            return sum(function() for _ in range(times))

        return repeated

    return decorate


def _logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def logged(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return logged


def double(number: int) -> int:
    return 2 * number


def seven() -> int:
    return 7


class _Callable:
    def __call__(self, number: int) -> int:
        return number


class Table:
    """Has instances that no key tells apart."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant

    def load(self, number: int) -> str:
        return f"{self.tenant}:{number}"

    @classmethod
    def name(cls) -> str:
        return cls.__name__


class NamedTable(Table):
    """Has instances with a name."""

    @property
    def cache_key(self) -> str:
        return self.tenant

    def load_by_super(self, number: int) -> str:
        return super().load(number)


REFUSED: list[tuple[Any, str]] = [
    (lambda number: number, "is a lambda"),
    (_logged(lambda number: number), "is a lambda"),
    (_adder(1), "closure over amount"),
    (_logged(_adder(1)), "closure over amount"),
    (_self_calling(), "closure over factorial"),
    (_repeating(2)(seven), "closure over times"),
    (functools.partial(double, 2), "is not a function"),
    (_Callable(), "is not a function"),
]


@pytest.mark.parametrize(("function", "reason"), REFUSED)
def test_a_function_that_has_its_name_in_common_with_others_is_refused(
    function: Any, reason: str
) -> None:
    with pytest.raises(TypeError, match=f"{reason}.*pass key= to cached"):
        cached(_offline_client, ttl=60)(function)
    cached(_offline_client, ttl=60, key=lambda *arguments: repr(arguments))(function)


@pytest.mark.parametrize("function", [double, _logged(double), _logged(_logged(double)), len])
def test_a_function_that_is_alone_with_its_name_is_not(function: Any) -> None:
    assert cached(_offline_client, ttl=60)(function).cache_key([1]).count(":") == 1


def test_an_instance_without_a_key_is_refused_at_the_call(glasscache_client: Client) -> None:
    load = cached(glasscache_client, ttl=60)(Table.load)
    with pytest.raises(TypeError, match=r"self.*no stable name.*ignore="):
        load(Table("tenant 1"), 7)
    shared_load = cached(glasscache_client, ttl=60, ignore=["self"])(Table.load)
    assert shared_load(Table("tenant 1"), 7) == shared_load(Table("tenant 2"), 7) == "tenant 1:7"


@given(st.text(max_size=5), st.text(max_size=5), st.integers(0, 3), st.integers(0, 3))
def test_instances_share_results_only_under_one_key(
    tenant: str, other_tenant: str, number: int, other_number: int
) -> None:
    tables = [NamedTable(tenant), NamedTable(other_tenant)]
    unbound = cached(_offline_client, ttl=60)(NamedTable.load)
    bound_keys = [
        cached(_offline_client, ttl=60)(table.load).cache_key(given_number)
        for table, given_number in zip(tables, [number, other_number], strict=True)
    ]
    unbound_keys = [
        unbound.cache_key(table, given_number)
        for table, given_number in zip(tables, [number, other_number], strict=True)
    ]
    is_same = (tenant, number) == (other_tenant, other_number)
    assert bound_keys == unbound_keys
    assert (bound_keys[0] == bound_keys[1]) == is_same


def test_a_method_by_super_and_the_classes_of_a_class_method_have_keys() -> None:
    by_super = cached(_offline_client, ttl=60)(NamedTable.load_by_super)
    assert by_super(NamedTable("t"), 7) == "t:7"
    names = [
        cached(_offline_client, ttl=60)(owner.name).cache_key() for owner in (Table, NamedTable)
    ]
    assert names[0] != names[1]


STATE: dict[str, Any] = {}


def read_state(number: int) -> Any:
    value = STATE["value"]
    STATE["while_reading"]()
    return f"{value} {number}"


async def read_state_later(number: int) -> Any:
    value = STATE["value"]
    await STATE["while_reading"]()
    return f"{value} {number}"


@pytest.mark.parametrize("tags", [(), ("prices",)])
@pytest.mark.parametrize("was_stored", [False, True])
@pytest.mark.parametrize("change", ["invalidate", "tag", "delete", "flush"])
@pytest.mark.parametrize("dialect", [None, "pymemcache"])
def test_a_refresh_stores_no_value_that_was_invalidated_meanwhile(
    server: Any,
    namespace: str,
    tags: tuple[str, ...],
    was_stored: bool,
    change: str,
    dialect: str | None,
) -> None:
    client = Client(server.address, timeout=5, namespace=namespace, dialect=dialect)
    other_client = Client(server.address, timeout=5, namespace=namespace, dialect=dialect)
    function = cached(client, ttl=60, tags=tags)(read_state)

    def change_and_invalidate() -> None:
        STATE.update(value="new", while_reading=lambda: None)
        match change:
            case "invalidate":
                function.invalidate(1)
            case "tag":
                other_client.invalidate_tag("prices")
            case "delete":
                other_client.delete_many([] if tags else [function.cache_key(1)])
            case _:
                other_client.flush()

    if (
        (change == "tag" and not tags)
        or (change == "delete" and tags)
        or (dialect and not was_stored)
    ):
        pytest.skip("this does not invalidate; such a dialect has no reservations")
    STATE.update(value="old", while_reading=lambda: None)
    if was_stored:
        function(1)
    STATE["while_reading"] = change_and_invalidate
    assert function.refresh(1) == "old 1"
    assert function(1) == "new 1"
    assert function.refresh(1) == "new 1"
    assert function.cache_info().fills >= 1


def test_a_refresh_replaces_what_is_stored_and_what_another_is_making(client: Client) -> None:
    function = cached(client, ttl=60)(read_state)
    STATE.update(value=1, while_reading=lambda: None)
    assert function(1) == "1 1"
    STATE["value"] = 2
    assert function.refresh(1) == "2 1"
    assert function(1) == "2 1"
    is_made, may_end = threading.Event(), threading.Event()

    def wait() -> None:
        is_made.set()
        may_end.wait(20)

    STATE["while_reading"] = wait
    filler = threading.Thread(target=lambda: function(5))
    filler.start()
    is_made.wait(20)
    STATE.update(value=3, while_reading=lambda: None)
    assert function.refresh(5) == "3 5"
    may_end.set()
    filler.join()
    assert function(5) == "3 5"


async def test_an_awaited_refresh_stores_no_value_that_was_invalidated_meanwhile(
    glasscache_server: Server,
) -> None:
    async with AsyncClient(glasscache_server.address, timeout=5) as client:
        function = cached(client, ttl=60)(read_state_later)

        async def nothing() -> None:
            pass

        async def change() -> None:
            STATE.update(value="new", while_reading=nothing)
            await function.invalidate(9)

        STATE.update(value="old", while_reading=change)
        assert await function.refresh(9) == "old 9"
        assert await function(9) == "new 9"
