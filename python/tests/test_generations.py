"""Generations: whatever happens to one, no value of an older one is read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from glasscache import Client
from glasscache._generations import read_generation, read_generations, start_generation
from glasscache._steps import Call, carry_out
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glasscache import Server

KEYS = ["a", "b", "c"]
EVENTS = st.lists(
    st.tuples(st.sampled_from(["start", "evict", "read"]), st.sampled_from(KEYS)), max_size=30
)


@pytest.fixture
def client(glasscache_server: Server) -> Iterator[Client]:
    with Client(glasscache_server.address, timeout=5) as client:
        client.flush()
        yield client


@given(EVENTS)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_generation_stays_until_it_is_renewed_or_evicted_and_never_returns(
    client: Client, events: list[tuple[str, str]]
) -> None:
    client.delete_many(KEYS)
    current, ended = dict[str, Any](), set[Any]()
    for event, key in events:
        if event == "read":
            generation = read_generation(client, key)
            assert generation not in ended
            assert current.setdefault(key, generation) == generation
        else:
            ended.add(current.pop(key, None))
            start_generation(client, key) if event == "start" else client.delete(key)


def test_the_generation_of_whoever_comes_first_counts(client: Client) -> None:
    client.delete_many(KEYS)
    steps, outcome = read_generations(client, KEYS), None
    with pytest.raises(StopIteration) as end:
        while True:
            step = steps.send(outcome)
            if isinstance(step, Call) and step.name == "add":
                client.set(step.arguments[0], "another's")
            outcome = step.begin()
    assert end.value.value == ["another's"] * len(KEYS)


@pytest.mark.parametrize("count", [1, 3])
def test_without_a_server_each_generation_is_a_new_one(count: int) -> None:
    with Client("127.0.0.1:1", on_error="miss", timeout=1) as client:
        generations = [
            generation
            for _ in range(2)
            for generation in carry_out(read_generations(client, KEYS[:count]))
        ]
    assert len(set(generations)) == 2 * count


def test_generations_of_earlier_versions_are_read(client: Client) -> None:
    for stored in (4_611_686_018_427_387_903, "1f2e3d4c"):
        client.set("generation", stored)
        assert read_generation(client, "generation") == stored
