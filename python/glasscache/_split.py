"""Values in pieces: how `set(..., split=True)` stores a value above the servers' limit, and how it is read.

A value whose bytes fit one piece is stored as it is. A longer one is stored as pieces under keys that contain
a random number of the write, and a manifest under the key itself, last. So a mixture of two writes is never
read, and a piece that is lost or altered makes the value a miss, which is counted. Reads find a `Manifest` in
place of the value and come here (docs/decisions/values.md, 0091).
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from glasscache._chunks import CHUNK_BYTES, Chunks, read_whole
from glasscache._native import ComputedValue, Manifest
from glasscache._steps import call, carry_out, carry_out_async
from glasscache.errors import GlasscacheError, UnreadableValue, ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glasscache._steps import Steps
    from glasscache._types import Key, Ttl

__all__ = [
    "Manifest",
    "encode_or_split",
    "read",
    "read_async",
    "read_many",
    "read_many_async",
    "touch",
    "touch_async",
    "write",
    "write_async",
]

PIECE_BYTES: Final = CHUNK_BYTES
_VERSION: Final = 1
_MANIFEST_STRUCT: Final = struct.Struct("<BQQIII")


class _PieceLayout(NamedTuple):
    """The contents of a manifest: where the pieces of a value are, and how they are verified."""

    version: int
    write_id: int
    """The random number in the keys of the pieces."""
    value_length: int
    piece_bytes: int
    flags: int
    """Client flags of the value."""
    checksum: int

    @property
    def pieces(self) -> Chunks:
        return Chunks(f"~piece:{self.write_id:016x}", self.value_length, self.piece_bytes)


def _parse_manifest(manifest: Manifest, bytes_max: int) -> _PieceLayout | None:
    """Return the contents of a manifest; None if it is damaged, or its value is longer than `bytes_max`."""
    try:
        layout = _PieceLayout(*_MANIFEST_STRUCT.unpack(manifest.body))
    except struct.error:
        return None
    is_valid = (
        layout.version == _VERSION and 0 < layout.value_length <= bytes_max and layout.piece_bytes
    )
    # More pieces than bytes of 4 KiB are not a manifest of this module: their keys would fill the memory.
    return layout if is_valid and layout.pieces.chunk_count <= 1 + bytes_max // 4096 else None


def encode_or_split(client: Any, value: Any, ttl: Ttl | None) -> Steps[Any]:
    """Return what is to be stored under the key: the value, or a manifest after its pieces were stored.

    Raises:
        GlasscacheError: what storing a piece failed with.

    """
    flags, body = client.codec.encode(value)
    piece_bytes = PIECE_BYTES
    if len(body) <= piece_bytes:
        return value
    if len(body) > client._state.value_bytes_max:
        raise ValueTooLarge(
            f"storing in pieces failed: {len(body)} bytes are above value_bytes_max; raise it",
            value_bytes=len(body), limit=client._state.value_bytes_max,
        )  # fmt: skip
    client.codec.encode(
        Manifest(b"")
    )  # a dialect without a form for it is refused before anything is stored
    write_id = int.from_bytes(os.urandom(8), "little")
    layout = _PieceLayout(_VERSION, write_id, len(body), piece_bytes, flags, zlib.crc32(body))
    for batch in layout.pieces.batches(body):
        failures = yield call(client, "set_many", batch, ttl=ttl)
        if failures:
            yield from _remove_pieces(client, layout)
            raise next(iter(failures.values()))
    return Manifest(_MANIFEST_STRUCT.pack(*layout))


def discard_pieces(client: Any, stored: Any) -> Steps[None]:
    """Remove the pieces of a value whose manifest was not stored."""
    if type(stored) is ComputedValue:
        stored = stored.value
    if type(stored) is Manifest:
        yield from _remove_pieces(client, _PieceLayout(*_MANIFEST_STRUCT.unpack(stored.body)))


def _remove_pieces(client: Any, layout: _PieceLayout) -> Steps[None]:
    with contextlib.suppress(GlasscacheError):  # they are never read, and fall out by age
        yield call(client, "delete_many", layout.pieces.keys())


def _write_pieces(client: Any, key: Key, value: Any, ttl: Ttl | None) -> Steps[bool]:
    stored = yield from encode_or_split(client, value, ttl)
    is_stored = bool((yield call(client, "set", key, stored, ttl)))
    if not is_stored:
        yield from discard_pieces(client, stored)
    return is_stored


def _read_pieces(client: Any, key: Key, manifest: Manifest) -> Steps[tuple[Any] | None]:
    """Return the value of a manifest in a tuple, or None: then the manifest is removed."""
    read_values = yield from _read_pieces_of_all(client, {key: manifest})
    return (read_values[key],) if key in read_values else None


def _read_pieces_of_all(client: Any, manifests: Mapping[Key, Manifest]) -> Steps[dict[Key, Any]]:
    """Return the values of manifests by key, without those that are incomplete."""
    layouts = _parse_manifests(client, manifests)
    read_bodies = yield from read_whole(client, {key: layouts[key].pieces for key in layouts})
    bodies = {
        key: body for key, body in read_bodies.items() if zlib.crc32(body) == layouts[key].checksum
    }
    for key in manifests.keys() - bodies.keys():
        client._state.count_incomplete()
        with contextlib.suppress(GlasscacheError):  # so that `add` of the key works again
            yield call(client, "delete", key)
    decoded = client.codec.decode_many([(layouts[key].flags, body) for key, body in bodies.items()])
    values = dict(zip(bodies, decoded, strict=True))
    for value in values.values():
        if isinstance(value, Exception):
            raise value
        if type(value) is Manifest:
            raise UnreadableValue("unreadable value: a manifest of a manifest")
    return values


def _parse_manifests(client: Any, manifests: Mapping[Key, Manifest]) -> dict[Key, _PieceLayout]:
    """Return the contents of those manifests that are valid.

    Pieces belong to one key: many manifests of the same pieces could otherwise fill the memory.
    """
    layouts: dict[Key, _PieceLayout] = {}
    owners: dict[int, bytes] = {}
    for key, manifest in manifests.items():
        layout = _parse_manifest(manifest, client._state.value_bytes_max)
        key_bytes = key.encode() if isinstance(key, str) else bytes(key)
        if layout is not None and owners.setdefault(layout.write_id, key_bytes) == key_bytes:
            layouts[key] = layout
    return layouts


def _touch_pieces(client: Any, manifest: Any, ttl: Ttl) -> Steps[bool]:
    """Give the pieces of a value a new TTL; false if there is no such value any more."""
    layout = None
    if type(manifest) is Manifest:
        layout = _parse_manifest(manifest, client._state.value_bytes_max)
    if layout is None:
        return False
    *quiet_keys, last_key = layout.pieces.keys()
    for piece_key in quiet_keys:
        # A piece that is lost is found by the next read; the call about the last one waits for all.
        yield call(client, "touch", piece_key, ttl, noreply=True)
    return bool((yield call(client, "touch", last_key, ttl)))


def _touch_under_key(client: Any, key: Key, ttl: Ttl) -> Steps[bool]:
    """Give the pieces of the value under a key a new TTL, after its manifest has got it."""
    try:
        manifest = yield call(client, "_get_unjoined", key)
        return (yield from _touch_pieces(client, manifest, ttl))
    except GlasscacheError as error:
        return bool(client._state.miss_or_raise(error, False))


def _manifest_of(read_value: Any) -> Manifest | None:
    """Return the manifest that a read found, alone or first of a tuple with metadata."""
    if type(read_value) is Manifest:
        return read_value
    match read_value:
        case (Manifest() as manifest, *_):
            return manifest
        case _:
            return None


def _replace_manifest(
    client: Any, key: Key, read_value: Any, new_ttl: Ttl | None
) -> Steps[tuple[Any] | None]:
    """Return what a read found, with the value in place of the manifest, in a tuple, or None.

    A read that has given the manifest a new TTL gives it to the pieces too.
    """
    if new_ttl is not None:
        yield from _touch_pieces(client, read_value, new_ttl)
    if type(read_value) is Manifest:
        return (yield from _read_pieces(client, key, read_value))
    replaced = yield from _read_pieces(client, key, read_value[0])
    return None if replaced is None else ((replaced[0], *read_value[1:]),)


def _replace_manifests(client: Any, read_values: dict[Any, Any]) -> Steps[dict[Any, Any]]:
    """Replace the manifests among what a bulk read found; those of incomplete values are removed."""
    manifests: dict[Any, Manifest] = {}
    for key, read_value in read_values.items():
        manifest = _manifest_of(read_value)
        if manifest is not None:
            manifests[key] = manifest
    values = yield from _read_pieces_of_all(client, manifests)
    for key in manifests:
        if key not in values:
            del read_values[key]
        elif type(read_values[key]) is Manifest:
            read_values[key] = values[key]
        else:
            read_values[key] = (values[key], *read_values[key][1:])
    return read_values


@contextlib.contextmanager
def _deadline_block(client: Any, deadline: float | None) -> Any:
    if deadline is None:
        yield
        return
    with client.deadline(max(deadline, 1e-6)):
        yield


def write(client: Any, key: Key, value: Any, ttl: Ttl | None, deadline: float | None) -> bool:
    """Store a value, in pieces if it is long; whether it was stored."""
    with _deadline_block(client, deadline):
        return carry_out(_write_pieces(client, key, value, ttl))


async def write_async(
    client: Any, key: Key, value: Any, ttl: Ttl | None, deadline: float | None
) -> bool:
    """Store a value as `write`."""
    with _deadline_block(client, deadline):
        return await carry_out_async(_write_pieces(client, key, value, ttl))


def read(
    client: Any, key: Key, read_value: Any, deadline: float | None, new_ttl: Ttl | None = None
) -> tuple[Any] | None:
    """Return what a read of one key found, with its value whole, in a tuple; None if a piece is lost.

    `new_ttl` is the TTL that the read has given to the key, if it has.
    """
    with _deadline_block(client, deadline):
        return carry_out(_replace_manifest(client, key, read_value, new_ttl))


async def read_async(
    client: Any, key: Key, read_value: Any, deadline: float | None, new_ttl: Ttl | None = None
) -> tuple[Any] | None:
    """Return what a read of one key found, as `read`."""
    with _deadline_block(client, deadline):
        return await carry_out_async(_replace_manifest(client, key, read_value, new_ttl))


def touch(client: Any, key: Key, ttl: Ttl, deadline: float | None) -> bool:
    """Give the pieces of a value its key's new TTL; whether they were there."""
    with _deadline_block(client, deadline):
        return carry_out(_touch_under_key(client, key, ttl))


async def touch_async(client: Any, key: Key, ttl: Ttl, deadline: float | None) -> bool:
    """Give the pieces of a value its key's new TTL, as `touch`."""
    with _deadline_block(client, deadline):
        return await carry_out_async(_touch_under_key(client, key, ttl))


def read_many(client: Any, read_values: dict[Any, Any], deadline: float | None) -> dict[Any, Any]:
    """Return what a read of many keys found, with its values whole."""
    with _deadline_block(client, deadline):
        return carry_out(_replace_manifests(client, read_values))


async def read_many_async(
    client: Any, read_values: dict[Any, Any], deadline: float | None
) -> dict[Any, Any]:
    """Return what a read of many keys found, as `read_many`."""
    with _deadline_block(client, deadline):
        return await carry_out_async(_replace_manifests(client, read_values))
