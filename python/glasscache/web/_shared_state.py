"""What the requests of a middleware share: settings, counters, keys and what was learnt about them. No I/O.

`SharedState` belongs to one middleware in one process. Keys are `namespace:` and 32 hexadecimal digits for a
response, with a suffix for its variants, its chunks and the lease of its refresh.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from glasscache._chunks import CHUNK_BYTES, Chunks
from glasscache.web._bounded_cache import BoundedCache
from glasscache.web._canonical import canonical_path
from glasscache.web._entry import Record, UnreadableRecord, decode
from glasscache.web._fields import Fields, host_of
from glasscache.web._kept_hits import KeptHit, KeptHits
from glasscache.web._message import NO_SETTINGS, Request, Settings, digest_of, normalized_value
from glasscache.web._purge_log import PurgeLog
from glasscache.web.settings import CacheSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache.web._entry import VaryRecord

__all__ = ["RuleSet", "SharedState"]

INLINE_BYTES_MAX: Final = CHUNK_BYTES
"""A body of at most this many bytes is stored with its head in one record."""
HINTS_BYTES_MAX: Final = 1 << 20
"""For the keys whose variant and tags are remembered, to be read in the same round trip."""
LEASE_RETRY_S: Final = 0.1
"""So long after a request of this process asked for the lease of a stale response no other asks for it."""
LEASE_ATTEMPTS_MAX: Final = 4096
DIGESTS_BYTES_MAX: Final = 1 << 20
"""For the texts whose digests and keys are kept."""
DECODED_BYTES_MAX: Final = 3 << 20
"""For the records that are kept decoded, so that a popular response is not decoded for each hit."""
_TEXT_BYTES, _RECORD_BYTES = 64, 4096
"""What a text and a record take in memory beside their characters and fields."""
URL_TAG_PREFIX: Final = b"~url:"
"""Before the tags that the cache itself gives."""
DEFAULTS: Final = CacheSettings()


class RuleSet(Protocol):
    """What the shared state needs of `glasscache.web.Rules`."""

    def urls_of(self, request: Request) -> list[tuple[bytes, bytes, bytes]]:
        """Return each host, path and query under which responses for a URL may be stored."""
        ...

    def decide(self, request: Request) -> Settings:
        """Return what rules say of a request."""
        ...

    def decide_response(
        self, settings: Settings, request: Request, status: int, fields: Fields
    ) -> Settings:
        """Return what rules say of a response, its request's settings included."""
        ...


class SharedState:
    """Settings, counters and hinted keys of a middleware."""

    def __init__(
        self,
        rules: RuleSet | None = None,
        cache_settings: CacheSettings = DEFAULTS,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Set the middleware up."""
        self.rules, self.cache_settings, self.clock = rules, cache_settings, clock
        self.namespace = cache_settings.namespace
        self.version = cache_settings.version.encode()
        self.max_bytes, self.early = cache_settings.max_bytes, cache_settings.early
        self.lease_s = cache_settings.lease
        self.wait_s = self.lease_s if cache_settings.wait is None else cache_settings.wait
        self.purge_log_key = f"{self.namespace}:purges"
        self.counters: Counter[str] = Counter()
        self._digests_and_keys = BoundedCache[bytes, tuple[bytes, str]](DIGESTS_BYTES_MAX)
        self._hinted_keys = BoundedCache[str, tuple[str, ...]](HINTS_BYTES_MAX)
        self._lease_retry_at: dict[str, float] = {}
        self._decoded_records = BoundedCache[str, tuple[bytes, Record]](DECODED_BYTES_MAX)
        self._purge_log: tuple[Any, PurgeLog | None] = (None, None)
        self._kept_hits = KeptHits()
        self.find_kept_hit = self._kept_hits.find
        # Not inherited: a class of its own may read what it does not put into the key.
        self._keeps_hits: bool = rules is None or vars(type(rules)).get(
            "notes_what_it_reads", False
        )

    def settings_of(self, request: Request) -> Settings:
        """Return what the rules say of a request; of one with fields that are too long they read nothing."""
        if self.rules is None or (request.is_safe and request.ambiguity == "long-field"):
            return NO_SETTINGS
        return self.rules.decide(request)

    def urls_of(self, request: Request) -> list[tuple[bytes, bytes, bytes]]:
        """Return each host, path and query under which responses for a URL may be stored."""
        own_url = (request.host, request.path, request.query)
        return [own_url] if self.rules is None else self.rules.urls_of(request)

    def url_prefixes(self, prefix: str) -> list[bytes]:
        """Return a prefix of host and path as stored URLs begin, for each host that rules make of it."""
        scheme, has_scheme, after_scheme = prefix.rpartition("://")
        url_prefix, question_mark, query = after_scheme.partition("?")
        host, slash, path = url_prefix.partition("/")
        fields = [(b"host", host_of(host))]
        prefixes = set[bytes]() if slash else {host.lower().encode()}  # a host may be cut off
        for each_scheme in (scheme.lower(),) if has_scheme else ("http", "https"):
            request = Request("GET", each_scheme, ("/" + path).encode(), b"", fields)
            own_path = request.path
            lower_path = canonical_path(request.path_text.lower().encode())[0]
            for url_host, url_path, _ in self.urls_of(request):
                is_lower = url_path.rstrip(b"/") == lower_path.rstrip(b"/")
                tail = (lower_path if is_lower else own_path) if slash else b""
                prefixes.add(url_host + tail + (question_mark + query).encode())
        return sorted(prefixes)

    def key_of(self, digest: bytes) -> str:
        """Return the key of a digest."""
        return f"{self.namespace}:{digest.hex()}"

    def tag_key(self, tag: bytes) -> str:
        """Return the key of a tag's record."""
        import hashlib  # noqa: PLC0415 - few responses have tags

        return f"{self.namespace}:t:{hashlib.blake2b(tag, digest_size=12).hexdigest()}"

    def digest_and_key(self, request: Request, settings: Settings) -> tuple[bytes, str]:
        """Return the digest of a request and its key; those of the last requests are kept."""
        key_text = request.key_text(self.version, settings)
        digest_and_key = self._digests_and_keys.entries.get(key_text)
        if digest_and_key is None:
            digest = digest_of(key_text)
            digest_and_key = digest, self.key_of(digest)
            self._digests_and_keys.put(key_text, digest_and_key, len(key_text))
        return digest_and_key

    def url_tag(self, request: Request, settings: Settings) -> bytes:
        """Return the tag by which the responses of one URL are purged whose keys have fields in them."""
        return URL_TAG_PREFIX + request.url_digest(self.version, settings).hex().encode()

    def variant_key(self, key: str, vary_record: VaryRecord, request: Request) -> str:
        """Return the key of the variant that a request selects."""
        import hashlib  # noqa: PLC0415 - likewise

        headers = request.headers
        values = b"\n".join(normalized_value(name, headers.get(name)) for name in vary_record.names)
        return f"{key}.{vary_record.id}{hashlib.blake2b(values, digest_size=8).hexdigest()}"

    def chunks(self, write_id: int, length: int) -> Chunks:
        """Return where a body is that is not in its record."""
        return Chunks(f"{self.namespace}:b:{write_id:016x}", length)

    def hinted_keys(self, key: str) -> tuple[str, ...]:
        """Return the keys that were needed beside `key` the last time."""
        return self._hinted_keys.entries.get(key, ())

    def remember_keys(self, key: str, keys: tuple[str, ...]) -> None:
        """Keep the keys that were needed beside `key`."""
        if self._hinted_keys.entries.get(key, ()) != keys:
            self._hinted_keys.put(key, keys, sum(_TEXT_BYTES + len(text) for text in keys))

    def may_lease_stale(self, key: str, now: float) -> bool:
        """Whether no request of this process requested the lease of a stale response a moment ago.

        The others send the stale response without a second round trip.
        """
        if self._lease_retry_at.get(key, 0.0) > now:
            return False
        _make_room(self._lease_retry_at, LEASE_ATTEMPTS_MAX)
        self._lease_retry_at[key] = now + LEASE_RETRY_S
        return True

    def forget_lease_attempt(self, key: str) -> None:
        """Forget the last attempt, which obtained the lease: after its release a request may try at once."""
        self._lease_retry_at.pop(key, None)

    def decode_record(self, key: str, data: Any, digest: bytes) -> Record | None:
        """Return the record that a value holds, or None if it cannot be read.

        The last ones are kept and belong to several requests: they are not changed.
        """
        kept_data, kept_record = self._decoded_records.entries.get(key, (None, None))
        if kept_record is not None and kept_data == data and kept_record.digest == digest:
            return kept_record
        try:
            record = decode(data, digest)
        except UnreadableRecord:
            self.counters["unreadable"] += 1
            return None
        # The value, its parts, and the fields of a hit.
        self._decoded_records.put(key, (data, record), 3 * len(data) + _RECORD_BYTES)
        return record

    def keep_hit(
        self, decision_key: bytes, names: tuple[bytes, ...], request: Request, kept_hit: KeptHit
    ) -> None:
        """Keep a decision for requests like this one; `names` are the fields that its response varies on."""
        if self._keeps_hits:
            self._kept_hits.keep(decision_key, names, request.fields, kept_hit)

    def decode_purge_log(self, data: Any) -> PurgeLog | None:
        """Return the record of purges that a value holds; it is parsed only when it has changed."""
        parsed_data, purge_log = self._purge_log
        if data is not None and data == parsed_data:
            return purge_log
        purge_log = None if data is None else PurgeLog.decode(data)
        self._purge_log = (data, purge_log)
        return purge_log


def _make_room(entries: dict[Any, Any], entries_max: int) -> None:
    """Forget the oldest entry of a full dictionary, as other threads may do at the same time."""
    if len(entries) >= entries_max:
        with contextlib.suppress(KeyError, RuntimeError, StopIteration):
            del entries[next(iter(entries))]


def new_token() -> str:
    """Return a name that no other writer has."""
    return secrets.token_hex(8)


def new_write_id() -> int:
    """Return a name of a body's chunks that no other write has; never 0."""
    return secrets.randbits(64) | 1
