"""Writes with the real clients and reads with our codec, and vice versa: `make dialects`.

Each value goes through a real memcached. A value read back must equal what was written, in type and
content, as far as the client distinguishes types; where our dialect must refuse (containers of
another language, pickles of containers) a refusal is required, and a value or a miss instead
is a failure.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))

from clients import Client, ClientNotInstalled, clients_with_compressions  # noqa: E402
from servers import memcached_servers  # noqa: E402
from wire import Case, cases, fetch_items, store_items  # noqa: E402


class OurCodec:
    """Our codec, run as a child process."""

    def __init__(self) -> None:
        binary = ROOT / "target" / "release" / "examples" / "convert"
        self.codec_process = subprocess.Popen(
            [str(binary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _request(self, line: str) -> list[str]:
        assert self.codec_process.stdin
        assert self.codec_process.stdout
        self.codec_process.stdin.write(line + "\n")
        self.codec_process.stdin.flush()
        reply = self.codec_process.stdout.readline().rstrip("\n")
        if not reply:
            raise RuntimeError(f"our codec ended at {line[:200]}")
        return reply.split(" ", 1)

    def encode(
        self, dialect: str, method: str, kind: str, payload: str
    ) -> tuple[int, bytes] | None:
        status_or_flags, body_hex = self._request(f"encode {dialect} {method} {kind} {payload}")
        return (
            None
            if status_or_flags == "refused"
            else (int(status_or_flags), bytes.fromhex(body_hex))
        )

    def decode(self, dialect: str, flags: int, body: bytes) -> tuple[str, str]:
        kind, payload = self._request(f"decode {dialect} {flags} {body.hex()}")
        return kind, payload


def is_same(client: Client, case: Case, actual: tuple[str, str]) -> bool:
    """Whether `actual` is the value of `case`, as far as this client distinguishes types."""
    (_, kind, payload), (actual_kind, actual_payload) = case, actual
    if kind == "float":
        digits = client.float_digits
        return (
            actual_kind == "float"
            and f"{float(payload):.{digits}g}" == f"{float(actual_payload):.{digits}g}"
        )
    if client.has_one_string_type and {kind, actual_kind} <= {"str", "bytes"}:
        return payload == actual_payload
    return (kind, payload) == (actual_kind, actual_payload)


def check_reading_their_values(
    codec: OurCodec, client: Client, server: str, tested_cases: list[Case]
) -> list[str]:
    """They write, we read; returns the failures."""
    client.write(server, tested_cases)
    items = fetch_items(server, [key for key, _, _ in tested_cases])
    failures = []
    for case in tested_cases:
        key, kind, _ = case
        if key not in items:
            failures.append(f"{key}: the client stored nothing")
            continue
        actual = codec.decode(client.dialect, *items[key])
        is_expected = actual[0] == "refused" if kind == "list" else is_same(client, case, actual)
        if not is_expected:
            failures.append(
                f"{key}: flags {items[key][0]:#x} {items[key][1][:20]!r} read as {actual[0]} {actual[1][:60]}"
            )
    return failures


def check_their_reading_of_our_values(
    codec: OurCodec, client: Client, server: str, tested_cases: list[Case]
) -> list[str]:
    """We write, they read; returns the failures."""
    failures, items = [], {}
    for key, kind, payload in tested_cases:
        if kind == "list":
            continue
        encoded = codec.encode(client.dialect, client.compression, kind, payload)
        if encoded is None:
            failures.append(f"{key}: we refuse to write it")
            continue
        items["ours." + key] = encoded
    store_items(server, items)
    values_read = client.read(server, list(items))
    for case in tested_cases:
        key = "ours." + case.key
        if key not in items:
            continue
        actual = values_read.get(key, ("missing", ""))
        if client.bool_reads_as_int and case.kind == "bool":
            actual = ("bool", actual[1])
        if client.none_reads_as_false and case.kind == "none" and actual == ("bool", "0"):
            actual = ("none", "")
        if not is_same(client, case, actual):
            failures.append(
                f"{key}: flags {items[key][0]:#x} {items[key][1][:20]!r} read as {actual[0]} {actual[1][:60]}"
            )
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memcached", default=shutil.which("memcached"))
    parser.add_argument("--only", help="one client")
    parser.add_argument("--allow-missing", action="store_true")
    options = parser.parse_args()
    build_folder = Path(tempfile.gettempdir()) / "glasscache-dialects"
    build_folder.mkdir(exist_ok=True)
    codec, failure_count = OurCodec(), 0
    print(f"{'client':26} {'compression':12} {'we read theirs':>15} {'they read ours':>15}")
    with memcached_servers(1, options.memcached) as [server]:
        for name, make_client in clients_with_compressions(build_folder):
            if options.only not in (None, name):
                continue
            try:
                client = make_client()
            except ClientNotInstalled as reason:
                print(f"{name:26} not compared: {reason}")
                failure_count += not options.allow_missing
                continue
            tested_cases = [case for case in cases() if case.kind not in client.skipped_kinds]
            failures_by_direction = [
                check_reading_their_values(codec, client, server, tested_cases),
                check_their_reading_of_our_values(codec, client, server, tested_cases),
            ]
            passed_of_total = [
                f"{total - len(failures)}/{total}"
                for failures, total in zip(
                    failures_by_direction, (len(tested_cases), len(tested_cases) - 1), strict=True
                )
            ]
            print(
                f"{client.name:26} {client.compression:12} {passed_of_total[0]:>15} {passed_of_total[1]:>15}",
                flush=True,
            )
            for failure in failures_by_direction[0] + failures_by_direction[1]:
                print(f"    {failure}")
            failure_count += sum(map(len, failures_by_direction))
    return min(failure_count, 1)


if __name__ == "__main__":
    sys.exit(main())
