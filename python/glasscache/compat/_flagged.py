"""Values as (flags, bytes): what the drop-in modules hand to the client, their own serialisers having run.

A flagged value is flags and bytes as another client made them; a full key has the prefix,
namespace or generation before the caller's key.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Any, Final

from glasscache import _native
from glasscache.errors import UnreadableValue
from glasscache.values import Codec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

FlagsAndBytes = tuple[int, bytes]

_RELATIVE_MAX_S: Final = 30 * 24 * 3600
"""The greatest exptime that memcached counts from now; a greater one is a Unix time."""


def _dump(flagged_value: Any) -> tuple[str, FlagsAndBytes]:
    return "flagged", flagged_value


def _load(_kind: str, flagged_value: FlagsAndBytes) -> FlagsAndBytes:
    return flagged_value


class FlaggedCodec(Codec):
    """A codec whose values are (flags, bytes)."""

    def __new__(cls) -> Self:
        """Make one; it has no settings."""
        return _native.Codec.__new__(
            cls, _dump, _load, dialect="flagged", compress=None, level=None, threshold=0, min_saving=0,
            decompressed_bytes_max=0, pickle=False, migrate_from=None,
        )  # fmt: skip


def ttl_from_exptime(exptime: float) -> float:
    """Return our seconds for an exptime as memcached means it."""
    return max(-1.0, exptime - time.time()) if exptime > _RELATIVE_MAX_S else exptime


_UNPACKED_BYTES_MAX: Final = 64 << 20
"""The longest value that compressed bytes may become: the limit of the client's own codecs."""


def decompress_zlib(body: bytes) -> bytes:
    """Return what zlib compressed.

    Raises:
        zlib.error: the bytes are not of zlib.
        UnreadableValue: they would become more than 64 MiB.

    """
    decompressor = zlib.decompressobj()
    plain = decompressor.decompress(body, _UNPACKED_BYTES_MAX + 1)
    if len(plain) > _UNPACKED_BYTES_MAX:
        raise UnreadableValue(
            f"decompressing {len(body)} bytes failed: the value has more than {_UNPACKED_BYTES_MAX} bytes"
        )
    if not decompressor.eof:
        raise zlib.error("Error -5 while decompressing data: incomplete or truncated stream")
    return plain


def all_or_raise(replies: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what every server replied, or raise the first error among the replies."""
    for reply in replies.values():
        if isinstance(reply, Exception):
            raise reply
    return replies
