#!/usr/bin/env python3
"""Random conversations with us and with a real memcached: every reply must be the same.

Both servers get the same commands one after another, in the classic and in the meta dialect, right,
odd and malformed; a key set of a dozen makes them meet. Numbers that no two servers share (CAS
uniques, addresses of connections) are compared by the order in which they appear. The first
conversation that differs is shortened to the fewest commands that still differ, and printed. What
differs on purpose (docs/decisions/0022) is not sent: times and client flags beyond 31 and 32 bits,
an overlong key in a get, one item by its plain and by its base64 name, arithmetic on blank lines or
with a unique of its own.

`python3 tests/live/differential.py --memcached memcached --rounds 2000`
"""

from __future__ import annotations

import argparse
import random
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from harness import Server

if TYPE_CHECKING:
    from collections.abc import Callable

# The first memcached whose replies are the measure.
OLDEST = (1, 6, 45)

KEYS = [b"a", b"b", b"key", b"k" * 250, b"0", b"n1", b"n2", b"\xc3\xa9"]
BAD_KEYS = [b"k" * 251, b"a\x01b"]
TIMES = [b"0", b"1000", b"-1", b"2592000", b"1000000000", b"2000000000", b"+5", b"05"]
BAD_NUMBERS = [b"x", b"1x", b"--1", b"99999999999999999999", b"1.5"]
DELTAS = [b"1", b"0", b"10", b"18446744073709551615", b"007"]
VALUES = [
    b"",
    b"5",
    b"10",
    b"99",
    b"18446744073709551615",
    b"abc",
    b"x" * 300,
    b"12  ",
    b"\r\nx",
    b"-3",
]
FLAGS = [b"0", b"1", b"4294967295", b"65535"]
# "m1" and "m2", and two that are no base64. The others never name an item that was stored by its plain name.
META_KEYS = [b"bTE=", b"bTI=", b"YQ=", b"!!!"]
# Commands of one conversation, and how many servers' seconds a reply may take.
LENGTH = 12
SECONDS = 3.0
# A command behind each one: its reply says that the one before has been answered whole.
FENCE = b"md no-such-key Ofence\r\n"
FENCE_REPLY = b"NF Ofence\r\n"


# The number of a command, and what we and the other answered to it.
Difference = tuple[int, bytes | None, bytes | None]


def pick_key(rng: random.Random) -> bytes:
    """Mostly a good key."""
    return rng.choice(BAD_KEYS if rng.random() < 0.03 else KEYS[: rng.choice((3, len(KEYS)))])


def pick_number(rng: random.Random, good: list[bytes]) -> bytes:
    """Mostly a good number."""
    return rng.choice(BAD_NUMBERS if rng.random() < 0.04 else good)


def noreply(rng: random.Random) -> bytes:
    """Sometimes the word, sometimes another."""
    return rng.choice([b""] * 12 + [b" noreply", b" NOREPLY", b" bogus"])


def classic_store(rng: random.Random) -> bytes:
    """set, add, replace, append, prepend, cas."""
    verb = rng.choice([b"set", b"set", b"set", b"add", b"replace", b"append", b"prepend", b"cas"])
    value = rng.choice(VALUES)
    line = b"%s %s %s %s %d" % (
        verb,
        pick_key(rng),
        pick_number(rng, FLAGS),
        pick_number(rng, TIMES),
        len(value),
    )
    if verb == b"cas":
        line += b" " + rng.choice([b"1", b"2", b"3", b"0", b"99999", b"x"])
    return line + noreply(rng) + b"\r\n" + value + b"\r\n"


def classic_get(rng: random.Random) -> bytes:
    """get, gets, gat, gats of one to four keys."""
    verb = rng.choice([b"get", b"gets", b"gat", b"gats"])
    words = [verb]
    if verb.startswith(b"gat"):
        words.append(pick_number(rng, TIMES))
    words += [rng.choice(KEYS) for _ in range(rng.choice((1, 1, 1, 2, 4)))]
    return b" ".join(words) + b"\r\n"


def classic_other(rng: random.Random) -> bytes:
    """Everything of one line that changes or asks."""
    key = pick_key(rng)
    return rng.choice(
        [
            b"delete %s%s\r\n"
            % (key, rng.choice([b"", b"", b" 0", b" 5", b" noreply", b" 0 noreply"])),
            b"incr %s %s%s\r\n" % (key, pick_number(rng, DELTAS), noreply(rng)),
            b"decr %s %s%s\r\n" % (key, pick_number(rng, DELTAS), noreply(rng)),
            b"touch %s %s%s\r\n" % (key, pick_number(rng, TIMES), noreply(rng)),
        ]
    )


def rare(rng: random.Random) -> bytes:
    """Words of administration and plain nonsense."""
    return rng.choice(
        [
            b"verbosity\r\n",
            b"verbosity 1\r\n",
            b"verbosity 1 noreply\r\n",
            b"flush_all\r\n",
            b"flush_all 0\r\n",
            b"flush_all 3000\r\n",
            b"flush_all x\r\n",
            b"flush_all noreply\r\n",
            b"bogus\r\n",
            b"\r\n",
            b"get\r\n",
            b"set a\r\n",
            b"set a 0 0\r\n",
            b"delete\r\n",
            b"incr a\r\n",
            b"touch a\r\n",
            b"gat 0\r\n",
            b"GET a\r\n",
            b" get a\r\n",
            b"get  a\r\n",
            b"get a \r\n",
            b"mg\r\n",
            b"ms a\r\n",
            b"ms a x\r\n",
            b"md\r\n",
            b"ma\r\n",
            b"me\r\n",
            b"me a\r\n",
            b"mn x\r\n",
            b"slabs\r\n",
            b"slabs reassign 1 2\r\n",
            b"slabs automove 0\r\n",
            b"slabs automove x\r\n",
            b"lru\r\n",
            b"lru tune 10 25 0.1 2.0\r\n",
            b"lru mode flat\r\n",
            b"lru mode segmented\r\n",
            b"lru temp_ttl 60\r\n",
            b"lru_crawler\r\n",
            b"lru_crawler sleep 100\r\n",
            b"lru_crawler tocrawl 0\r\n",
            b"cache_memlimit 64\r\n",
            b"cache_memlimit x\r\n",
            b"cache_memlimit\r\n",
            b"watch bogus\r\n",
            b"shutdown\r\n",
            b"stats detail on\r\n",
            b"stats detail off\r\n",
            b"stats detail bogus\r\n",
            b"stats bogus\r\n",
        ]
    )


def meta_flags(rng: random.Random, letters: bytes, values: dict[int, Callable[[], bytes]]) -> bytes:
    """Some flags out of `letters`, each with its value where it takes one."""
    line = b""
    for letter in rng.sample(list(letters), rng.randrange(min(6, len(letters)))):
        line += b" %c%s" % (letter, values[letter]() if letter in values else b"")
    if rng.random() < 0.03:
        line += rng.choice([b" v v", b" N", b" Tx", b" T1 T2", b" x9"])
    return line


def meta(rng: random.Random) -> bytes:
    """mg ms md ma with flags of their own, sometimes of another."""
    values: dict[int, Callable[[], bytes]] = {
        ord("O"): lambda: rng.choice([b"1", b"opaque"]),
        ord("T"): lambda: pick_number(rng, [b"0", b"30", b"1000", b"-1"]),
        ord("N"): lambda: pick_number(rng, [b"0", b"30", b"1000"]),
        ord("R"): lambda: pick_number(rng, [b"0", b"30", b"5000"]),
        ord("E"): lambda: rng.choice([b"5", b"77", b"18446744073709551000"]),
        ord("C"): lambda: rng.choice([b"5", b"77", b"1", b"0", b"x"]),
        ord("D"): lambda: pick_number(rng, DELTAS),
        ord("J"): lambda: pick_number(rng, DELTAS),
        ord("F"): lambda: pick_number(rng, FLAGS),
        ord("M"): lambda: rng.choice(
            [b"S", b"A", b"P", b"E", b"R", b"I", b"D", b"+", b"-", b"set", b"incr", b"q", b""]
        ),
    }
    verb = rng.choice([b"mg", b"mg", b"ms", b"ms", b"md", b"ma"])
    base64 = rng.random() < 0.08
    key = rng.choice(META_KEYS) if base64 else pick_key(rng)
    suffix = b" b" if base64 else b""
    # Of two errors on one line the servers may name either, and a key that a miss created knows no base64.
    spoiled = key in (*BAD_KEYS, b"YQ=", b"!!!")
    letters = {
        b"mg": b"vtsfcqOTNRElh",
        b"md": b"qOTCEIxcs",
        b"ma": b"qONJDTMCtcv",
        b"ms": b"qOTFCEIMcs",
    }[verb]
    if not base64:
        letters += b"k"
    if verb in (b"mg", b"ma"):
        # A time to live below zero would be shown as what is left of 32 bits.
        values[ord("T")] = lambda: pick_number(rng, [b"0", b"30", b"1000"])
        letters += b"u"
    flags = b"" if spoiled else meta_flags(rng, letters, values)
    if verb == b"ms":
        value = rng.choice(VALUES)
        return b"ms %s %d%s%s\r\n%s\r\n" % (key, len(value), suffix, flags, value)
    return b"%s %s%s%s\r\n" % (verb, key, suffix, flags)


def conversation(rng: random.Random) -> list[bytes]:
    """One conversation."""
    makers = [
        classic_store,
        classic_store,
        classic_get,
        classic_get,
        classic_other,
        meta,
        meta,
        meta,
    ]
    return [rng.choice(makers)(rng) if rng.random() > 0.05 else rare(rng) for _ in range(LENGTH)]


class Talk:
    """A connection on which each command is answered before the next is sent."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, command: bytes) -> bytes | None:
        """All that is answered to one command; `None` once the connection is closed."""
        try:
            self.socket.sendall(command + FENCE)
            reply = b""
            while not reply.endswith(FENCE_REPLY):
                piece = self.socket.recv(1 << 16)
                if not piece:
                    return reply or None
                reply += piece
        except TimeoutError:
            return reply + b"(no more)"
        except OSError:
            return None
        return reply.removesuffix(FENCE_REPLY)


class Plain:
    """Replaces numbers that servers count for themselves by the order in which they appear."""

    def __init__(self) -> None:
        self.uniques: dict[bytes, int] = {}

    def _number(self, match: re.Match[bytes]) -> bytes:
        unique = match.group(2)
        return match.group(1) + b"#%d" % self.uniques.setdefault(unique, len(self.uniques))

    def reply(self, reply: bytes | None, command: bytes) -> bytes | None:
        """The reply with its own numbers made common."""
        if reply is None:
            return None
        if command.startswith((b"gets", b"gats")):
            return re.sub(rb"(VALUE \S+ \d+ \d+ )(\d+)", self._number, reply)
        if command.startswith(b"m"):
            head, end, rest = reply.partition(b"\r\n")
            head = re.sub(rb"( c| cas=)(\d+)", self._number, head)
            # A second may pass between the two servers' answers.
            head = re.sub(
                rb"( t|exp=)(\d{2,})", lambda t: t[1] + b"%d" % ((int(t[2]) + 2) // 5), head
            )
            return head + end + rest
        return reply


def are_errors_of_one_line(command: bytes, ours: bytes | None, theirs: bytes | None) -> bool:
    """Of several errors on one meta line the servers may name different ones."""
    return command.startswith(b"m") and all(
        reply is not None and reply.startswith(b"CLIENT_ERROR") and reply.count(b"\n") == 1
        for reply in (ours, theirs)
    )


def run(commands: list[bytes], servers: tuple[Server, Server]) -> Difference | None:
    """The first command that is answered differently, with both replies; `None` when none is."""
    talks = [Talk(server) for server in servers]
    plain = (Plain(), Plain())
    try:
        for talk in talks:
            talk.ask(b"flush_all\r\n")
            for word in (b"lru mode segmented", b"verbosity 0", b"stats detail off"):
                talk.ask(word + b"\r\n")
        for number, command in enumerate(commands):
            ours, theirs = (
                own.reply(talk.ask(command), command)
                for talk, own in zip(talks, plain, strict=True)
            )
            if ours != theirs and not are_errors_of_one_line(command, ours, theirs):
                return number, ours, theirs
            if ours is None:
                return None
        return None
    finally:
        for talk in talks:
            talk.socket.close()


def shorten(commands: list[bytes], servers: tuple[Server, Server]) -> list[bytes]:
    """Leaves out one command after another as long as the servers still differ."""
    position = 0
    while position < len(commands):
        fewer = commands[:position] + commands[position + 1 :]
        if run(fewer, servers) is not None:
            commands = fewer
        else:
            position += 1
    return commands


def is_old(program: str) -> bool:
    """Whether a memcached is older than the one whose replies are the measure."""
    said = subprocess.run(
        [*program.split(), "-V"], capture_output=True, text=True, check=False
    ).stdout
    numbers = [int(number) for number in re.findall(r"[0-9]+", said)[:3]]
    return numbers < list(OLDEST)


def main() -> int:
    """Prints each kind of difference once; returns 0 when there was none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="target/release/glasscache serve")
    parser.add_argument("--memcached", default="memcached", help="the peer, 1.6.45 or newer")
    parser.add_argument("--rounds", type=int, default=2000, help="conversations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--differences", type=int, default=10, help="stop after so many")
    args = parser.parse_args()
    if is_old(args.memcached):
        parser.error(
            f"{args.memcached} is older than {'.'.join(map(str, OLDEST))}, whose replies are ours"
        )
    servers = (
        Server(args.server.split(), ("-m", "64")),
        Server(args.memcached.split(), ("-m", "64")),
    )
    found = 0
    for number in range(args.rounds):
        rng = random.Random(args.seed * 1_000_003 + number)
        commands = conversation(rng)
        if run(commands, servers) is None:
            continue
        found += 1
        short = shorten(commands, servers)
        differs = run(short, servers)
        print(f"conversation {number}:")
        for command in short:
            print(f"   {command!r}")
        if differs:
            print(f"   ours   {differs[1]!r}\n   theirs {differs[2]!r}")
        if found >= args.differences:
            break
    print(f"{number + 1} conversations of {LENGTH} commands, {found} differ")
    for server in servers:
        server.kill()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
