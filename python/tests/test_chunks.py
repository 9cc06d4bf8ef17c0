"""Long values in chunks: every slice is that of the value, and what is lost or false costs one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from glasscache import Client
from glasscache._chunks import CHUNKS_PER_READ, Chunks, read_whole
from glasscache._steps import carry_out
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glasscache import Server


@pytest.fixture
def client(glasscache_server: Server) -> Iterator[Client]:
    with Client(glasscache_server.address, timeout=5) as client:
        yield client


def store(client: Client, key_stem: str, body: bytes, chunk_bytes: int) -> Chunks:
    chunks = Chunks(key_stem, len(body), chunk_bytes)
    for batch in chunks.batches(body):
        assert not client.set_many(batch)
    return chunks


@given(st.binary(min_size=1, max_size=300), st.integers(1, 40), st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_slices_are_those_of_the_value(
    client: Client, body: bytes, chunk_bytes: int, data: st.DataObject
) -> None:
    chunks = store(client, "sliced", body, chunk_bytes)
    start = data.draw(st.integers(0, len(body) - 1))
    stop = data.draw(st.integers(start + 1, len(body)))
    index, read_bytes = start // chunk_bytes, b""
    while len(read_bytes) < stop - start:
        read_chunks = carry_out(chunks.read(client, index))
        assert read_chunks is not None
        assert 1 <= len(read_chunks) <= CHUNKS_PER_READ
        read_bytes += b"".join(chunks.slices(read_chunks, index, start, stop))
        index += len(read_chunks)
    assert read_bytes == body[start:stop]
    assert carry_out(read_whole(client, {"name": chunks})) == {"name": body}


@pytest.mark.parametrize("altered", [None, b"", b"longer than it was", "text"])
def test_a_chunk_that_is_lost_or_altered_is_never_part_of_a_value(
    client: Client, altered: Any
) -> None:
    whole, damaged = store(client, "whole", b"x" * 900, 9), store(client, "damaged", b"y" * 900, 9)
    for index in (0, 70, 99):
        key = damaged.key(index)
        client.delete(key) if altered is None else client.set(key, altered)
        assert carry_out(damaged.read(client, index)) is None
        assert carry_out(read_whole(client, {1: whole, 2: damaged})) == {1: b"x" * 900}
        client.set(key, b"y" * 9)


def test_a_length_that_is_not_true_costs_one_request(client: Client) -> None:
    endless = Chunks("endless", 2**62)
    for steps in (endless.touch(client, 60), endless.read(client, 0)):
        step, request_count = next(steps), 1
        with pytest.raises(StopIteration) as end:
            while True:
                step, request_count = steps.send(step.begin()), request_count + 1
        assert (request_count, end.value.value or None) == (1, None)
