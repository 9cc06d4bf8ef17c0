"""Which stored responses have a tag: found by a scan of the servers' keys, as no index is kept.

A scan reads the keys that a server lists (`lru_crawler metadump`), and those of this cache's responses by
multi-gets. It is bounded by keys and stops there, so it is for people and scripts and not for requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from glasscache._steps import call
from glasscache.errors import ServerUnavailable
from glasscache.web._entry import Entry, UnreadableRecord, decode
from glasscache.web._message import tag_of
from glasscache.web._purge_log import PurgeLog, TagPurges
from glasscache.web._run_steps import run_steps, run_steps_async

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.web._shared_state import SharedState

__all__ = ["TagListing", "list_tag", "list_tag_async"]

KEYS_MAX: Final = 1_000_000
"""Keys of all servers that a scan looks at unless told."""
URLS_MAX: Final = 10_000
"""Responses that a scan returns unless told."""
_KEYS_PER_READ: Final = 16
"""Responses read at once: each may have a body of 512 KiB."""
_TIMEOUT_S: Final = 5
_LINE_BYTES_MAX: Final = 4096


class TagListing(NamedTuple):
    """What a scan for a tag has found."""

    urls: list[str]
    """Host, path and query of each response, sorted; a URL with several variants is there once."""
    keys_scanned: int
    """Keys that the servers listed, those of others included."""
    is_complete: bool
    """Whether the scan saw every key; else a bound ended it."""


def list_tag(
    shared: SharedState,
    client: Any,
    tag: str,
    *,
    keys_max: int = KEYS_MAX,
    urls_max: int = URLS_MAX,
) -> TagListing:
    """Return the responses that are stored with a tag and not purged.

    Args:
        shared: the state of a middleware.
        client: a `Client` of its servers.
        tag: as rules or the tag field name it.
        keys_max: keys to read, of all servers together.
        urls_max: responses to return.

    Raises:
        ServerUnavailable: a server cannot be reached, or does not list its keys.

    """
    keys, scanned_count, saw_all_keys = _scan_keys(shared, client, keys_max)
    urls, read_all_urls = run_steps(_read_tagged_urls(shared, client, tag, keys, urls_max))
    return TagListing(urls, scanned_count, saw_all_keys and read_all_urls)


async def list_tag_async(
    shared: SharedState,
    client: Any,
    tag: str,
    *,
    keys_max: int = KEYS_MAX,
    urls_max: int = URLS_MAX,
) -> TagListing:
    """Return the responses that are stored with a tag, as `list_tag`, with an `AsyncClient`."""
    keys, scanned_count, saw_all_keys = await asyncio.to_thread(
        _scan_keys, shared, client, keys_max
    )
    urls, read_all_urls = await run_steps_async(
        _read_tagged_urls(shared, client, tag, keys, urls_max)
    )
    return TagListing(urls, scanned_count, saw_all_keys and read_all_urls)


def _scan_keys(shared: SharedState, client: Any, keys_max: int) -> tuple[list[str], int, bool]:
    """Return the keys of this cache's responses, how many keys were listed, and whether all were."""
    own_key_pattern = re.compile(
        rf"(?:^|.*[^0-9a-z]){re.escape(shared.namespace)}:[0-9a-f]{{32}}(?:\.\w+)?"
    )
    own_keys: list[str] = []
    scanned_count = 0
    for server in client.stats()["servers"]:
        with contextlib.closing(_list_server_keys(server)) as server_keys:
            for key in server_keys:
                if scanned_count == keys_max:
                    return own_keys, scanned_count, False
                scanned_count += 1
                if own_key_pattern.fullmatch(key):
                    own_keys.append(key[key.rfind(f"{shared.namespace}:") :])
    return own_keys, scanned_count, True


def _list_server_keys(server: str) -> Generator[str]:
    """Yield the keys of a server, in no particular order."""
    try:
        with _connect(server) as stream, stream.makefile("rwb") as lines:
            lines.write(b"lru_crawler metadump all\r\n")
            lines.flush()
            while (line := lines.readline(_LINE_BYTES_MAX)) != b"END\r\n":
                if line.startswith(b"key="):
                    yield unquote_to_bytes(line[4:].split(b" ", 1)[0]).decode("latin-1")
                elif line != b"OK\r\n":
                    reply = line.decode("latin-1").strip() or "the connection was closed"
                    raise ServerUnavailable(
                        f"listing the keys of {server} failed: {reply}", server=server
                    )
    except OSError as error:
        raise ServerUnavailable(
            f"listing the keys of {server} failed: {error}", server=server
        ) from error


def _connect(server: str) -> socket.socket:
    if server.startswith("/"):
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(_TIMEOUT_S)
        stream.connect(server)
        return stream
    host, _, port = server.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S)


def _read_tagged_urls(
    shared: SharedState, client: Any, tag: str, keys: list[str], urls_max: int
) -> Generator[Any, Any, tuple[list[str], bool]]:
    """Return the URLs of those keys whose response has the tag, and whether all were read (as steps)."""
    tag_bytes = tag_of(tag).encode()
    log_values = yield call(client, "get_many", [shared.purge_log_key])
    purge_log = shared.decode_purge_log(log_values.get(shared.purge_log_key))
    tagged_urls: set[str] = set()
    purges_by_tag: dict[bytes, TagPurges | None] = {}
    for first_index in range(0, len(keys) if purge_log is not None else 0, _KEYS_PER_READ):
        values = yield call(client, "get_many", keys[first_index : first_index + _KEYS_PER_READ])
        entries = [_decode_entry(shared, key, data) for key, data in values.items()]
        tagged_entries = [
            entry for entry in entries if entry is not None and tag_bytes in entry.tags
        ]
        unread_tags = {
            entry_tag
            for entry in tagged_entries
            for entry_tag in entry.tags
            if entry_tag not in purges_by_tag
        }
        if unread_tags:
            tag_values = yield call(
                client, "get_many", [shared.tag_key(entry_tag) for entry_tag in unread_tags]
            )
            purges_by_tag |= {
                entry_tag: TagPurges.decode(tag_values.get(shared.tag_key(entry_tag)))
                for entry_tag in unread_tags
            }
        for entry in tagged_entries:
            if purge_log is not None and not _is_gone(entry, purge_log, purges_by_tag):
                tagged_urls.add(entry.url.decode("latin-1"))
                if len(tagged_urls) == urls_max:
                    return sorted(tagged_urls), False
    return sorted(tagged_urls), True


def _is_gone(
    entry: Entry, purge_log: PurgeLog, purges_by_tag: dict[bytes, TagPurges | None]
) -> bool:
    purges_of_tags = [purges_by_tag.get(entry_tag) for entry_tag in entry.tags]
    is_purged = any(
        purges is None or entry.purge_seq < purges.removed_before for purges in purges_of_tags
    )
    return is_purged or purge_log.purge_state_of(entry.url, entry.purge_seq)[0]


def _decode_entry(shared: SharedState, key: str, data: Any) -> Entry | None:
    digest_start = len(shared.namespace) + 1
    try:
        record = decode(data, bytes.fromhex(key[digest_start : digest_start + 32]))
    except (UnreadableRecord, ValueError):
        return None
    return record if isinstance(record, Entry) else None
