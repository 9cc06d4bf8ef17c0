"""pymemcache's serdes: `serialize(key, value) -> (bytes, flags)` and `deserialize(key, bytes, flags)`."""

from __future__ import annotations

import io
import logging
import pickle
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from glasscache.compat._flagged import decompress_zlib

if TYPE_CHECKING:
    from collections.abc import Callable

FLAG_BYTES: Final = 0
FLAG_PICKLE: Final = 1
FLAG_INTEGER: Final = 2
FLAG_LONG: Final = 4
FLAG_COMPRESSED: Final = 8
FLAG_TEXT: Final = 16

DEFAULT_PICKLE_VERSION: Final = pickle.HIGHEST_PROTOCOL

_log = logging.getLogger(__name__)


class Serde(Protocol):
    """What a client needs of a serde."""

    def serialize(self, key: Any, value: Any) -> tuple[Any, int]:
        """Return bytes (or text to be encoded) and flags."""
        ...

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
        """Return the value of bytes under flags."""
        ...


def _serialize(
    _key: Any, value: Any, pickle_version: int = DEFAULT_PICKLE_VERSION
) -> tuple[Any, int]:
    # The exact types: a subclass would come back as its base.
    if type(value) is bytes:
        return value, FLAG_BYTES
    if type(value) is str:
        return value.encode("utf8"), FLAG_TEXT
    if type(value) is int:
        return f"{value}", FLAG_INTEGER
    return pickle.dumps(value, pickle_version), FLAG_PICKLE


def get_python_memcache_serializer(
    pickle_version: int = DEFAULT_PICKLE_VERSION,
) -> Callable[[Any, Any], tuple[Any, int]]:
    """Return a serializer that pickles by this protocol."""
    return partial(_serialize, pickle_version=pickle_version)


python_memcache_serializer = get_python_memcache_serializer()


def python_memcache_deserializer(key: Any, value: bytes, flags: int) -> Any:
    """Return the value of bytes under python-memcached's flags."""
    if flags == FLAG_BYTES:
        return value
    if flags & FLAG_TEXT:
        return value.decode("utf8")
    if flags & (FLAG_INTEGER | FLAG_LONG):
        return int(value)
    if flags & FLAG_PICKLE:
        try:
            # Naming this serde enables pickles.
            return pickle.Unpickler(io.BytesIO(value)).load()  # noqa: S301
        except Exception:  # noqa: BLE001 - unpickling raises anything; pymemcache makes it a miss
            _log.warning("unreadable pickle under %r is taken as a miss", key, exc_info=True)
            return None
    return value


class PickleSerde:
    """Text, bytes and whole numbers as they are, anything else pickled."""

    def __init__(self, pickle_version: int = DEFAULT_PICKLE_VERSION) -> None:
        """Pickle by this protocol."""
        self._serialize_func = get_python_memcache_serializer(pickle_version)

    def serialize(self, key: Any, value: Any) -> tuple[Any, int]:
        """Return bytes and flags."""
        return self._serialize_func(key, value)

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
        """Return the value."""
        return python_memcache_deserializer(key, value, flags)


pickle_serde = PickleSerde()


class CompressedSerde:
    """Another serde's bytes, compressed when that makes them shorter."""

    def __init__(
        self,
        compress: Callable[[bytes], bytes] = zlib.compress,
        decompress: Callable[[bytes], bytes] = decompress_zlib,
        serde: Serde = pickle_serde,
        min_compress_len: int = 400,
    ) -> None:
        """Compress what is longer than `min_compress_len`; 0 never."""
        self._serde, self._compress, self._decompress = serde, compress, decompress
        self._min_compress_len = min_compress_len

    def serialize(self, key: Any, value: Any) -> tuple[Any, int]:
        """Return bytes and flags."""
        plain, flags = self._serde.serialize(key, value)
        if len(plain) <= self._min_compress_len or self._min_compress_len <= 0:
            return plain, flags
        packed = self._compress(plain.encode() if isinstance(plain, str) else plain)
        return (packed, flags | FLAG_COMPRESSED) if len(packed) <= len(plain) else (plain, flags)

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
        """Return the value."""
        plain = self._decompress(value) if flags & FLAG_COMPRESSED else value
        return self._serde.deserialize(key, plain, flags)


compressed_serde = CompressedSerde()


class LegacyWrappingSerde:
    """A serde of two functions, either of which may be missing."""

    def __init__(
        self,
        serializer_func: Callable[[Any, Any], tuple[Any, int]] | None,
        deserializer_func: Callable[[Any, bytes, int], Any] | None,
    ) -> None:
        """Take values as they are where a function is missing."""
        self._serialize = serializer_func
        self._deserialize = deserializer_func

    def serialize(self, key: Any, value: Any) -> tuple[Any, int]:
        """Return what the function makes of the value."""
        return (value, 0) if self._serialize is None else self._serialize(key, value)

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
        """Return what the function makes of the bytes."""
        return value if self._deserialize is None else self._deserialize(key, value, flags)
