"""Random conversations with a cache in both dialects, of right, odd and malformed commands.

A key set of a dozen makes the commands meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

KEYS = [b"a", b"b", b"key", b"k" * 250, b"0", b"n1", b"n2", b"\xc3\xa9"]
INVALID_KEYS = [b"k" * 251, b"a\x01b"]
EXPTIMES = [b"0", b"1000", b"-1", b"2592000", b"1000000000", b"2000000000", b"+5", b"05"]
INVALID_NUMBERS = [b"x", b"1x", b"--1", b"99999999999999999999", b"1.5"]
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
CLIENT_FLAGS = [b"0", b"1", b"4294967295", b"65535"]
# "m1" and "m2", and two that are no base64. The others never name an item that was stored by its plain name.
META_KEYS = [b"bTE=", b"bTI=", b"YQ=", b"!!!"]
# Commands of one conversation.
COMMANDS_PER_CONVERSATION = 12


def pick_key(rng: random.Random) -> bytes:
    """Mostly a good key."""
    return rng.choice(INVALID_KEYS if rng.random() < 0.03 else KEYS[: rng.choice((3, len(KEYS)))])


def pick_number(rng: random.Random, valid_numbers: list[bytes]) -> bytes:
    """Mostly a good number."""
    return rng.choice(INVALID_NUMBERS if rng.random() < 0.04 else valid_numbers)


def noreply_option(rng: random.Random) -> bytes:
    """Mostly nothing, sometimes `noreply`, sometimes another word."""
    return rng.choice([b""] * 12 + [b" noreply", b" NOREPLY", b" bogus"])


def random_store_command(rng: random.Random) -> bytes:
    """set, add, replace, append, prepend, cas."""
    verb = rng.choice([b"set", b"set", b"set", b"add", b"replace", b"append", b"prepend", b"cas"])
    value = rng.choice(VALUES)
    line = b"%s %s %s %s %d" % (
        verb,
        pick_key(rng),
        pick_number(rng, CLIENT_FLAGS),
        pick_number(rng, EXPTIMES),
        len(value),
    )
    if verb == b"cas":
        line += b" " + rng.choice([b"1", b"2", b"3", b"0", b"99999", b"x"])
    return line + noreply_option(rng) + b"\r\n" + value + b"\r\n"


def random_get_command(rng: random.Random) -> bytes:
    """get, gets, gat, gats of one to four keys."""
    verb = rng.choice([b"get", b"gets", b"gat", b"gats"])
    words = [verb]
    if verb.startswith(b"gat"):
        words.append(pick_number(rng, EXPTIMES))
    words += [rng.choice(KEYS) for _ in range(rng.choice((1, 1, 1, 2, 4)))]
    return b" ".join(words) + b"\r\n"


def random_change_command(rng: random.Random) -> bytes:
    """delete, incr, decr and touch."""
    key = pick_key(rng)
    return rng.choice(
        [
            b"delete %s%s\r\n"
            % (key, rng.choice([b"", b"", b" 0", b" 5", b" noreply", b" 0 noreply"])),
            b"incr %s %s%s\r\n" % (key, pick_number(rng, DELTAS), noreply_option(rng)),
            b"decr %s %s%s\r\n" % (key, pick_number(rng, DELTAS), noreply_option(rng)),
            b"touch %s %s%s\r\n" % (key, pick_number(rng, EXPTIMES), noreply_option(rng)),
        ]
    )


def random_admin_or_malformed_command(rng: random.Random) -> bytes:
    """Administration commands and malformed lines."""
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


def random_meta_flags(
    rng: random.Random, letters: bytes, value_makers: dict[int, Callable[[], bytes]]
) -> bytes:
    """Some flags out of `letters`, each with its value where it takes one."""
    line = b""
    for letter in rng.sample(list(letters), rng.randrange(min(6, len(letters)))):
        line += b" %c%s" % (letter, value_makers[letter]() if letter in value_makers else b"")
    if rng.random() < 0.03:
        line += rng.choice([b" v v", b" N", b" Tx", b" T1 T2", b" x9"])
    return line


def random_meta_command(rng: random.Random) -> bytes:
    """mg ms md ma with flags of their own, sometimes of another."""
    value_makers: dict[int, Callable[[], bytes]] = {
        ord("O"): lambda: rng.choice([b"1", b"opaque"]),
        ord("T"): lambda: pick_number(rng, [b"0", b"30", b"1000", b"-1"]),
        ord("N"): lambda: pick_number(rng, [b"0", b"30", b"1000"]),
        ord("R"): lambda: pick_number(rng, [b"0", b"30", b"5000"]),
        ord("E"): lambda: rng.choice([b"5", b"77", b"18446744073709551000"]),
        ord("C"): lambda: rng.choice([b"5", b"77", b"1", b"0", b"x"]),
        ord("D"): lambda: pick_number(rng, DELTAS),
        ord("J"): lambda: pick_number(rng, DELTAS),
        ord("F"): lambda: pick_number(rng, CLIENT_FLAGS),
        ord("M"): lambda: rng.choice(
            [b"S", b"A", b"P", b"E", b"R", b"I", b"D", b"+", b"-", b"set", b"incr", b"q", b""]
        ),
    }
    verb = rng.choice([b"mg", b"mg", b"ms", b"ms", b"md", b"ma"])
    is_base64 = rng.random() < 0.08
    key = rng.choice(META_KEYS) if is_base64 else pick_key(rng)
    suffix = b" b" if is_base64 else b""
    # Of two errors on one line the servers may name either, and a key that a miss created knows no base64.
    has_invalid_key = key in (*INVALID_KEYS, b"YQ=", b"!!!")
    letters = {
        b"mg": b"vtsfcqOTNRElh",
        b"md": b"qOTCEIxcs",
        b"ma": b"qONJDTMCtcv",
        b"ms": b"qOTFCEIMcs",
    }[verb]
    if not is_base64:
        letters += b"k"
    if verb in (b"mg", b"ma"):
        # A time to live below zero would be shown as what is left of 32 bits.
        value_makers[ord("T")] = lambda: pick_number(rng, [b"0", b"30", b"1000"])
        letters += b"u"
    flags = b"" if has_invalid_key else random_meta_flags(rng, letters, value_makers)
    if verb == b"ms":
        value = rng.choice(VALUES)
        return b"ms %s %d%s%s\r\n%s\r\n" % (key, len(value), suffix, flags, value)
    return b"%s %s%s%s\r\n" % (verb, key, suffix, flags)


def random_conversation(rng: random.Random) -> list[bytes]:
    """One conversation."""
    command_makers = [
        random_store_command,
        random_store_command,
        random_get_command,
        random_get_command,
        random_change_command,
        random_meta_command,
        random_meta_command,
        random_meta_command,
    ]
    return [
        rng.choice(command_makers)(rng)
        if rng.random() > 0.05
        else random_admin_or_malformed_command(rng)
        for _ in range(COMMANDS_PER_CONVERSATION)
    ]
