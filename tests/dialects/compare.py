"""Writes with the real clients and reads with ours, and the other way round: `make dialects`.

Each value goes through a real memcached. A value read back must equal what was written, in type and
content, as far as the client can tell types apart; where our dialect must refuse (containers of
another language, pickles of containers) a refusal is demanded, and a value or a miss in its place
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

from clients import Client, Missing, makers  # noqa: E402
from servers import memcacheds  # noqa: E402
from wire import Case, cases, fetch, store  # noqa: E402


class Ours:
    """Our codec, run as a child process."""

    def __init__(self) -> None:
        binary = ROOT / "target" / "release" / "examples" / "convert"
        self.child = subprocess.Popen(
            [str(binary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _request(self, line: str) -> list[str]:
        assert self.child.stdin
        assert self.child.stdout
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        reply = self.child.stdout.readline().rstrip("\n")
        if not reply:
            raise RuntimeError(f"our codec ended at {line[:200]}")
        return reply.split(" ", 1)

    def encode(
        self, dialect: str, method: str, kind: str, payload: str
    ) -> tuple[int, bytes] | None:
        first, rest = self._request(f"encode {dialect} {method} {kind} {payload}")
        return None if first == "refused" else (int(first), bytes.fromhex(rest))

    def decode(self, dialect: str, flags: int, body: bytes) -> tuple[str, str]:
        kind, payload = self._request(f"decode {dialect} {flags} {body.hex()}")
        return kind, payload


def is_same(client: Client, case: Case, got: tuple[str, str]) -> bool:
    """Whether `got` is the value of `case`, as far as this client can tell."""
    (_, kind, payload), (got_kind, got_payload) = case, got
    if kind == "float":
        digits = client.float_digits
        return (
            got_kind == "float"
            and f"{float(payload):.{digits}g}" == f"{float(got_payload):.{digits}g}"
        )
    if client.one_string_type and {kind, got_kind} <= {"str", "bytes"}:
        return payload == got_payload
    return (kind, payload) == (got_kind, got_payload)


def read_theirs(ours: Ours, client: Client, server: str, lines: list[Case]) -> list[str]:
    """They write, we read: what went wrong."""
    client.write(server, lines)
    items = fetch(server, [key for key, _, _ in lines])
    wrong = []
    for case in lines:
        key, kind, _ = case
        if key not in items:
            wrong.append(f"{key}: the client stored nothing")
            continue
        got = ours.decode(client.dialect, *items[key])
        is_right = got[0] == "refused" if kind == "list" else is_same(client, case, got)
        if not is_right:
            wrong.append(
                f"{key}: flags {items[key][0]:#x} {items[key][1][:20]!r} read as {got[0]} {got[1][:60]}"
            )
    return wrong


def read_ours(ours: Ours, client: Client, server: str, lines: list[Case]) -> list[str]:
    """We write, they read: what went wrong."""
    wrong, items = [], {}
    for key, kind, payload in lines:
        if kind == "list":
            continue
        made = ours.encode(client.dialect, client.method, kind, payload)
        if made is None:
            wrong.append(f"{key}: we refuse to write it")
            continue
        items["ours." + key] = made
    store(server, items)
    theirs = client.read(server, list(items))
    for case in lines:
        key = "ours." + case[0]
        if key not in items:
            continue
        got = theirs.get(key, ("missing", ""))
        if client.bool_reads_as_int and case[1] == "bool":
            got = ("bool", got[1])
        if client.none_reads_as_false and case[1] == "none" and got == ("bool", "0"):
            got = ("none", "")
        if not is_same(client, case, got):
            wrong.append(
                f"{key}: flags {items[key][0]:#x} {items[key][1][:20]!r} read as {got[0]} {got[1][:60]}"
            )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memcached", default=shutil.which("memcached"))
    parser.add_argument("--only", help="one client")
    parser.add_argument("--allow-missing", action="store_true")
    options = parser.parse_args()
    build = Path(tempfile.gettempdir()) / "glasscache-dialects"
    build.mkdir(exist_ok=True)
    ours, failed = Ours(), 0
    print(f"{'client':26} {'compression':12} {'we read theirs':>15} {'they read ours':>15}")
    with memcacheds(1, options.memcached) as [server]:
        for name, make in makers(build):
            if options.only not in (None, name):
                continue
            try:
                client = make()
            except Missing as why:
                print(f"{name:26} not compared: {why}")
                failed += not options.allow_missing
                continue
            lines = [case for case in cases() if case[1] not in client.skips]
            wrong = [
                read_theirs(ours, client, server, lines),
                read_ours(ours, client, server, lines),
            ]
            counts = [
                f"{total - len(bad)}/{total}"
                for bad, total in zip(wrong, (len(lines), len(lines) - 1), strict=True)
            ]
            print(
                f"{client.name:26} {client.method:12} {counts[0]:>15} {counts[1]:>15}", flush=True
            )
            for sentence in wrong[0] + wrong[1]:
                print(f"    {sentence}")
            failed += sum(map(len, wrong))
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
