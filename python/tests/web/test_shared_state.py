"""The shared state of the requests of a process: hints, requested leases and decoded records, all bounded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from glasscache.web import _shared_state
from glasscache.web._entry import Entry
from glasscache.web._shared_state import SharedState

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def often_switched_threads() -> Iterator[None]:
    """Let threads take turns as often as the interpreter can."""
    switch_interval_before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(switch_interval_before)


def entry_of(digest: bytes, body: bytes = b"body") -> Entry:
    return Entry(digest, 1.0, 60, 0, 0, 200, 0, 1, len(body), 0, 0, [(b"a", b"b")], (), body)


@pytest.mark.usefixtures("often_switched_threads")
def test_threads_may_fill_the_shared_state_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_shared_state, "LEASE_ATTEMPTS_MAX", 2)
    for bound_name in ("HINTS_BYTES_MAX", "DECODED_BYTES_MAX"):
        monkeypatch.setattr(_shared_state, bound_name, 100_000)
    shared, errors = SharedState(), list[BaseException]()
    encoded_entry = entry_of(bytes(16)).encode()

    def use_shared_state(thread_number: int) -> None:
        try:
            for repetition in range(3000):
                key = f"{thread_number}.{repetition}"
                shared.remember_keys(key, ("a",))
                shared.may_lease_stale(key, 1.0)
                assert shared.decode_record(key, encoded_entry, bytes(16)) is not None
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [
        threading.Thread(target=use_shared_state, args=(thread_number,))
        for thread_number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_decoded_record_is_used_for_the_same_bytes_and_digest_only() -> None:
    shared, digest = SharedState(), bytes(range(16))
    encoded_entry = entry_of(digest).encode()
    decoded_entry = shared.decode_record("k", encoded_entry, digest)
    assert decoded_entry is shared.decode_record("k", bytes(bytearray(encoded_entry)), digest)
    assert shared.decode_record("k", encoded_entry, bytes(16)) is None
    assert shared.decode_record("k", encoded_entry[:-1], digest) is None
    other_entry = shared.decode_record("k", entry_of(digest, b"other").encode(), digest)
    assert isinstance(other_entry, Entry)
    assert other_entry.body == b"other"


def test_a_large_record_is_decoded_each_time() -> None:
    shared, digest = SharedState(), bytes(16)
    encoded_entry = entry_of(digest, bytes(_shared_state.DECODED_BYTES_MAX)).encode()
    assert shared.decode_record("k", encoded_entry, digest) is not shared.decode_record(
        "k", encoded_entry, digest
    )


def test_a_stale_lease_may_be_requested_again_after_a_pause_or_once_it_was_taken() -> None:
    shared = SharedState()
    assert shared.may_lease_stale("k", 10.0)
    assert not shared.may_lease_stale("k", 10.05)
    assert shared.may_lease_stale("k", 10.0 + _shared_state.LEASE_RETRY_S)
    shared.forget_lease_attempt("k")
    assert shared.may_lease_stale("k", 10.1)


def test_each_process_gives_a_request_the_same_key() -> None:
    program = """
from glasscache.web._message import KEYED_FIELDS, NO_SETTINGS, Request
fields = [(b"host", b"a.example"), *((name, b"value") for name in sorted(KEYED_FIELDS))]
print(Request("GET", "http", b"/", b"", fields).digest(b"", NO_SETTINGS).hex())
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(digests) == 1
