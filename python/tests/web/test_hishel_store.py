"""The hishel storages: the cases of hishel's own Redis storage tests that concern keys, limits and races."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from glasscache._chunks import CHUNK_BYTES, CHUNKS_PER_READ
from glasscache._steps import call
from glasscache.contrib._hishel_entries import ENTRIES_MAX, UNPUBLISHED_S
from glasscache.contrib._hishel_head import GRACE_S, EntryHead

from web.hishel_storages import UNUSED_KEYS, FakeTime, store_entry

if TYPE_CHECKING:
    from collections.abc import Generator

FULL_CHUNK = b"x" * CHUNK_BYTES


def ttl_of(storage: Any, key: str) -> int | None:
    item = storage.call_client_method("get_with_meta", key)
    assert item is not None, key
    return item.ttl


def keys_of(storage: Any, entry: Any, chunk_count: int) -> list[str]:
    """Return the keys of an entry that the server has."""
    all_keys = [storage.entry_steps.chunks(entry.id).key(index) for index in range(chunk_count)]
    all_keys.append(storage.entry_steps.head_key(entry.id))
    return [key for key in all_keys if storage.call_client_method("get", key) is not None]


def head_of(storage: Any, entry: Any) -> EntryHead:
    head = EntryHead.decode(
        storage.call_client_method("get", storage.entry_steps.head_key(entry.id))
    )
    assert head is not None
    return head


def test_ttl_caps_tti(make_storage: Any, storage_clock: FakeTime) -> None:
    storage, key = make_storage(default_ttl=200, default_tti=100), next(UNUSED_KEYS)
    store_entry(storage, key)
    for seconds, expected_count in ((80, 1), (160, 1), (201, 0)):
        storage_clock.now = FakeTime.now + seconds
        assert len(storage.call_method("get_entries", key)) == expected_count, seconds


def test_keys_live_on_as_long_as_an_entry_is_used(
    make_storage: Any, storage_clock: FakeTime
) -> None:
    storage, key = make_storage(default_tti=100), next(UNUSED_KEYS)
    entry = store_entry(storage, key)
    for seconds in range(60, 1000, 60):
        storage_clock.now = FakeTime.now + seconds
        [found_entry] = storage.call_method("get_entries", key)
        assert storage.read(found_entry) == b"data"
        assert ttl_of(storage, storage.entry_steps.chunks(entry.id).key(0)) == pytest.approx(
            100 + GRACE_S, abs=5
        )


def test_an_entry_without_limits_never_expires(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entry = store_entry(storage, key)
    for stored_key in (*keys_of(storage, entry, 1), storage.entry_steps.index_key(key)):
        assert ttl_of(storage, stored_key) is None, stored_key


def test_the_index_outlives_every_entry_in_it(make_storage: Any) -> None:
    storage = make_storage()
    for first_ttl, ttl in ((1000, 1000), (None, None)):
        key = next(UNUSED_KEYS)
        store_entry(storage, key, ttl=first_ttl)
        store_entry(storage, key, ttl=100)
        expected = None if ttl is None else pytest.approx(ttl + GRACE_S, abs=5)
        assert ttl_of(storage, storage.entry_steps.index_key(key)) == expected


def test_the_index_is_not_shortened_by_the_use_of_a_short_lived_entry(
    make_storage: Any, storage_clock: FakeTime
) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    store_entry(storage, key)
    store_entry(storage, key, tti=100)
    storage_clock.now = FakeTime.now + 60
    assert len(storage.call_method("get_entries", key)) == 2
    assert ttl_of(storage, storage.entry_steps.index_key(key)) is None


def test_the_index_of_a_key_is_bounded(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entries = [store_entry(storage, key) for _ in range(ENTRIES_MAX + 3)]
    found_ids = [entry.id for entry in storage.call_method("get_entries", key)]
    assert found_ids == [entry.id for entry in entries[3:]]


def test_another_writer_at_the_same_time_does_not_shorten_the_index(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    add_to_index, is_first = storage.entry_steps._add_to_index, True

    def add_after_another(*arguments: Any) -> Generator[Any, Any, bool]:
        nonlocal is_first
        steps = add_to_index(*arguments)
        outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as stop:
                return bool(stop.value)
            outcome = yield step
            if is_first and step.name == "gets":  # between the read and the write of this one
                is_first = False
                yield from add_to_index(key, other_entry.id, None)

    other_entry = store_entry(storage, next(UNUSED_KEYS))
    storage.entry_steps._add_to_index = add_after_another
    entry = store_entry(storage, key, ttl=60)
    assert ttl_of(storage, storage.entry_steps.index_key(key)) is None
    assert [found_entry.id for found_entry in storage.call_method("get_entries", key)] == [entry.id]


def test_frequent_reads_do_not_write(make_storage: Any, storage_clock: FakeTime) -> None:
    storage, key = make_storage(default_tti=1000), next(UNUSED_KEYS)
    entry = store_entry(storage, key)
    used_at_creation = head_of(storage, entry).used_at
    storage_clock.now = FakeTime.now + 10
    storage.call_method("get_entries", key)
    assert head_of(storage, entry).used_at == used_at_creation
    storage_clock.now = FakeTime.now + 600
    storage.call_method("get_entries", key)
    assert head_of(storage, entry).used_at == used_at_creation + 600


@pytest.mark.parametrize("method", ["_restart_idle_time", "_add_to_index"])
def test_an_entry_removed_while_it_is_extended_or_published_stays_removed(
    make_storage: Any,
    storage_clock: FakeTime,
    method: str,
) -> None:
    storage, key = make_storage(default_tti=100), next(UNUSED_KEYS)
    entry_steps, original_method = storage.entry_steps, getattr(storage.entry_steps, method)
    if method == "_restart_idle_time":
        entry = store_entry(storage, key)
        storage_clock.now = FakeTime.now + 90
    else:
        entry = storage.create(key, [b"data"])

    def remove_first(*arguments: Any) -> Generator[Any, Any, Any]:
        yield call(entry_steps.client, "delete", entry_steps.head_key(entry.id))
        return (yield from original_method(*arguments))

    setattr(entry_steps, method, remove_first)
    if method == "_restart_idle_time":
        storage.call_method("get_entries", key)
    else:
        assert storage.read(entry) == b"data"
    assert storage.call_method("get_entries", key) == []
    assert storage.call_client_method("get", entry_steps.head_key(entry.id)) is None


def test_a_reader_keeps_what_it_has_not_read_of_an_expired_entry(
    make_storage: Any, storage_clock: FakeTime
) -> None:
    storage, key = make_storage(default_ttl=100), next(UNUSED_KEYS)
    chunk_count = 2 * CHUNKS_PER_READ + 3
    entry = store_entry(storage, key, FULL_CHUNK * chunk_count)
    [found_entry] = storage.call_method("get_entries", key)
    last_chunk_key = storage.entry_steps.chunks(entry.id).key(chunk_count - 1)
    assert ttl_of(storage, last_chunk_key) == pytest.approx(100 + GRACE_S, abs=5)
    storage_clock.now = FakeTime.now + 150
    assert len(storage.read(found_entry)) == len(FULL_CHUNK) * chunk_count
    assert ttl_of(storage, last_chunk_key) == pytest.approx(GRACE_S, abs=5)


def test_a_reader_of_a_live_entry_does_not_shorten_keys(
    make_storage: Any, storage_clock: FakeTime
) -> None:
    storage, key = make_storage(default_ttl=10_000), next(UNUSED_KEYS)
    entry = store_entry(storage, key, FULL_CHUNK * (CHUNKS_PER_READ + 3))
    [found_entry] = storage.call_method("get_entries", key)
    storage_clock.now = FakeTime.now + 100
    storage.read(found_entry)
    assert (
        ttl_of(storage, storage.entry_steps.chunks(entry.id).key(CHUNKS_PER_READ + 2)) or 0
    ) > 9_000


def test_a_slow_writer_keeps_its_head_and_publishes(
    make_storage: Any, storage_clock: FakeTime
) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entry = storage.create(key, [FULL_CHUNK] * 3)
    storage.read(entry, 1)
    storage_clock.now = FakeTime.now + 150
    assert ttl_of(storage, storage.entry_steps.head_key(entry.id)) == pytest.approx(GRACE_S, abs=5)
    storage.read(entry)
    [found_entry] = storage.call_method("get_entries", key)
    assert len(storage.read(found_entry)) == 3 * CHUNK_BYTES


def test_a_writer_that_lost_its_head_does_not_publish(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entry = storage.create(key, [FULL_CHUNK] * 2)
    storage.read(entry, 1)
    storage.call_client_method("delete", storage.entry_steps.head_key(entry.id))
    storage.read(entry)
    assert storage.call_method("get_entries", key) == []
    assert keys_of(storage, entry, 2) == []


def test_what_a_crashed_writer_leaves_expires(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entry = storage.create(key, [FULL_CHUNK] * 2)
    storage.read(entry, 1)
    assert ttl_of(storage, storage.entry_steps.head_key(entry.id)) == pytest.approx(GRACE_S, abs=5)
    assert ttl_of(storage, storage.entry_steps.chunks(entry.id).key(0)) == pytest.approx(
        UNPUBLISHED_S, abs=5
    )


def test_a_store_that_fails_in_the_middle_does_not_fail_the_consumer(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entry = storage.create(key, [FULL_CHUNK] * 4)
    body = storage.read(entry, 1)

    client, storage.entry_steps.client = (
        storage.entry_steps.client,
        None,
    )  # a call of nothing raises
    storage.entry_steps.store_chunk = lambda *_: _failed_put(storage.entry_steps)
    storage.entry_steps.discard = lambda *_: _failed_put(storage.entry_steps)
    body += storage.read(entry)
    storage.entry_steps.client = client
    assert body == FULL_CHUNK * 4
    assert storage.call_method("get_entries", key) == []


def _failed_put(entry_steps: Any) -> Generator[Any, Any, bool]:
    """Do as the steps of a failing store."""
    entry_steps.store_errors += 1
    yield from ()
    return False


def test_defaults_apply_only_to_entries_made_under_them(
    make_storage: Any, storage_clock: FakeTime
) -> None:
    key = next(UNUSED_KEYS)
    store_entry(make_storage(default_tti=100), key)
    second_storage = make_storage(default_tti=1000)
    for seconds, expected_count in ((90, 1), (250, 0)):
        storage_clock.now = FakeTime.now + seconds
        assert len(second_storage.call_method("get_entries", key)) == expected_count, seconds


@pytest.mark.parametrize(
    "limits", [{"ttl_ends_at": "soon"}, {"tti_s": [1]}, {"used_at": None, "tti_s": 9}]
)
def test_corrupt_limits_are_a_miss_and_lookup_still_works(
    make_storage: Any, limits: dict[str, Any]
) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    corrupt_entry, entry = store_entry(storage, key), store_entry(storage, key)
    head_key = storage.entry_steps.head_key(corrupt_entry.id)
    content = json.loads(storage.call_client_method("get", head_key))
    storage.call_client_method("set", head_key, json.dumps({**content, **limits}).encode())
    assert [found_entry.id for found_entry in storage.call_method("get_entries", key)] == [entry.id]


@pytest.mark.parametrize("key", ["some/key:with-symbols", "k" * 400, "white space", "caf\u00e9"])
def test_entries_are_found_and_removed_under_any_key(make_storage: Any, key: str) -> None:
    storage, key = make_storage(), f"{next(UNUSED_KEYS)}{key}"
    entry = store_entry(storage, key)
    assert [found_entry.id for found_entry in storage.call_method("get_entries", key)] == [entry.id]
    storage.call_method("remove_entry", entry.id)
    assert storage.call_method("get_entries", key) == []
