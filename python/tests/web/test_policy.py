"""The pure parts of the HTTP cache: fields, lifetimes and records, on random input too."""

from __future__ import annotations

import contextlib

import pytest
from glasscache.web._entry import (
    Entry,
    PendingRecord,
    UncacheableRecord,
    UnreadableRecord,
    VaryRecord,
    decode,
    encode_record,
)
from glasscache.web._fields import (
    http_date,
    parse_cache_control,
    parse_date,
    parse_targeted,
    parse_whole_number,
    split_list,
)
from glasscache.web._message import NO_SETTINGS, Request
from glasscache.web._policy import Lifetime, Refusal, decide_reuse, lifetime_of, merge_fields
from glasscache.web._purge_log import PurgeLog, new_purge_log
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000.0
GET = Request("GET", "http", b"/", b"", [(b"host", b"a.example")])


def lifetime_of_fields(
    *fields: tuple[bytes, bytes], status: int = 200, request: Request = GET
) -> Lifetime | Refusal:
    return lifetime_of(request, NO_SETTINGS, status, list(fields), NOW, NOW)


@pytest.mark.parametrize(
    ("fields", "expected_fresh_s"),
    [
        ([(b"cache-control", b"max-age=60")], 60),
        ([(b"cache-control", b"max-age=60, s-maxage=5")], 5),
        ([(b"cache-control", b"max-age=60, max-age=5")], 5),
        ([(b"cache-control", b'max-age="60"')], 60),
        ([(b"cache-control", b'x="max-age=60", max-age=1')], 1),
        ([(b"cache-control", b"max-age=60a")], 0),
        ([(b"cache-control", b"max-age=99999999999999999999999")], 2**31),
        ([(b"cache-control", b"max-age=1"), (b"cdn-cache-control", b"max-age=60")], 60),
        ([(b"cache-control", b"max-age=1"), (b"cdn-cache-control", b"max-age=60, &&")], 1),
        ([(b"cache-control", b"no-store"), (b"cdn-cache-control", b"max-age=60")], 60),
        ([(b"date", http_date(int(NOW))), (b"expires", http_date(int(NOW) + 30))], 30),
        ([(b"expires", b"0")], 0),
        ([(b"last-modified", http_date(int(NOW) - 1000))], 100),
        ([(b"etag", b'"a"')], 0),
    ],
)
def test_the_lifetime_follows_from_the_fields(
    fields: list[tuple[bytes, bytes]], expected_fresh_s: int
) -> None:
    found_lifetime = lifetime_of_fields(*fields)
    assert isinstance(found_lifetime, Lifetime)
    assert found_lifetime.fresh_s == expected_fresh_s


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([(b"cache-control", b"no-store")], "no-store"),
        ([(b"cache-control", b"private")], "private"),
        ([(b"cache-control", b"max-age=60"), (b"vary", b"a, *")], "vary-star"),
        ([(b"cache-control", b"max-age=60"), (b"x", b"a\r\nb: c")], "malformed-field"),
        ([(b"cdn-cache-control", b"private"), (b"cache-control", b"max-age=60")], "private"),
        ([], "no-lifetime"),
    ],
)
def test_a_response_that_may_not_be_stored_is_refused_with_the_reason(
    fields: list[tuple[bytes, bytes]], reason: str
) -> None:
    assert lifetime_of_fields(*fields) == Refusal(reason)


def make_entry(**changes: int) -> Entry:
    values = {"fresh": 60, "swr": 0, "sie": 0, "flags": 0, **changes}
    return Entry(
        b"d" * 16, NOW, values["fresh"], values["swr"], values["sie"], 200, values["flags"], 7, 4, 0, 3,
        [(b"a", b"1"), (b"b", b"")], (b"t", b"u"), b"body", b"a.example/",
    )  # fmt: skip


@given(st.integers(0, 200), st.integers(0, 100), st.integers(0, 100), st.integers(0, 7))
def test_a_stale_response_is_never_called_fresh(
    seconds_later: int, fresh: int, swr: int, flags: int
) -> None:
    reuse = decide_reuse(
        make_entry(fresh=fresh, swr=swr, flags=flags), GET, NO_SETTINGS, NOW + seconds_later, False
    )
    assert (reuse.kind == "fresh") <= (seconds_later < fresh)
    assert (reuse.kind == "stale") <= (fresh <= seconds_later < fresh + swr)


@given(st.binary(max_size=60))
def test_parsers_take_any_bytes(data: bytes) -> None:
    parse_cache_control(data)
    parse_targeted(data)
    parse_date(data)
    parse_whole_number(data.decode("latin-1"))
    assert all(part == part.strip() for part in split_list(data))


@given(st.integers(0, 2**33))
def test_a_date_is_parsed_as_it_was_written(unix_time: int) -> None:
    assert parse_date(http_date(unix_time)) == unix_time


def test_records_come_back_and_damage_is_noticed() -> None:
    digest = b"d" * 16
    other_records = (
        PendingRecord(digest, "t", 1.5),
        VaryRecord(digest, (b"a",), "i", 3),
        UncacheableRecord(digest, "why", "t"),
    )
    for data, record in [
        (make_entry().encode(), make_entry()),
        *((encode_record(record), record) for record in other_records),
    ]:
        assert decode(data, digest) == record
        with pytest.raises(UnreadableRecord):
            decode(data, b"e" * 16)
        for index in range(len(data)):
            damaged_data = data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]
            with pytest.raises(UnreadableRecord):
                decode(damaged_data, digest)
            with pytest.raises(UnreadableRecord):
                decode(data[:index], digest)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_record(data: bytes) -> None:
    with contextlib.suppress(UnreadableRecord):
        decode(data, data[8:24])
    assert PurgeLog.decode(data) is None or data[:1] == b"{"


def test_a_304_updates_fields_but_not_those_of_the_body() -> None:
    stored_fields = [(b"etag", b'"a"'), (b"content-length", b"5"), (b"x", b"1"), (b"y", b"1")]
    fields_of_304 = [
        (b"etag", b'"b"'),
        (b"content-length", b"0"),
        (b"x", b"2"),
        (b"connection", b"z"),
        (b"z", b"1"),
    ]
    assert sorted(merge_fields(stored_fields, fields_of_304)) == sorted(
        [(b"etag", b'"a"'), (b"content-length", b"5"), (b"x", b"2"), (b"y", b"1")]
    )


def test_too_many_prefixes_purge_too_much_rather_than_too_little() -> None:
    purge_log = new_purge_log()
    for number in range(200):
        purge_log = purge_log.with_purge(b"a.example/%d/" % number, is_soft=number % 2 == 0)
    for number in range(200):
        is_gone, is_soft = purge_log.purge_state_of(b"a.example/%d/x" % number, purge_log.first_seq)
        assert is_gone or (is_soft and number % 2 == 0)
    assert PurgeLog.decode(purge_log.encode()) == purge_log
    assert len(purge_log.purges) <= 64
