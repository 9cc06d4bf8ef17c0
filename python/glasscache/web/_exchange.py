"""One request through the cache: what is sent from the store, what is fetched, and which request fetches.

The steps are plans (`glasscache._plans`): generators that yield calls of the client, pauses and waits, and
are sent the outcomes, so that ASGI and WSGI share every decision. A response is visible only when its last
byte is stored, by compare-and-swap on what its fetch replaces: a key that was purged or invalidated
meanwhile stays so.

A cold key holds a `Pending` mark while one request fetches; others of the process wait for it, and one a
process reads the store for it. A store that fails, or has no clock of purges, makes the request an ordinary
one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from glasscache._plans import Sleep, call
from glasscache.errors import GlasscacheError
from glasscache.web._core import PIECE_BYTES, WINDOW_PIECES, Lookup, new_token
from glasscache.web._entry import Entry, Pending, Uncacheable, encode_mark
from glasscache.web._lease import UNCACHEABLE_S, Fetch, Lease
from glasscache.web._policy import (
    STALE_FOR_ERROR,
    Lifetime,
    Refusal,
    kept_fields,
    lifetime_of,
    may_replace_error,
    merged_fields,
)
from glasscache.web._purged import new_site
from glasscache.web._reply import CACHE_NAME, CONDITIONAL, Reply, gateway_timeout, reply_of
from glasscache.web._writer import Writer

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.web._core import Core
    from glasscache.web._fields import Fields
    from glasscache.web._message import Request, Settings
    from glasscache.web._policy import Use

__all__ = ["Exchange", "Found", "Head"]

_POLL_FIRST_S: Final = 0.002
_POLL_LAST_S: Final = 0.02
ALONE_WAIT_S: Final = 0.5
"""So long a HEAD or a request for a range waits for the whole response that another request fetches."""


@dataclass(slots=True)
class Found:
    """A stored response is sent; with `refresh` the key is to be fetched again in the background."""

    reply: Reply
    refresh: Fetch | None = None
    pieces: list[bytes] | None = None
    """The first pieces of its body, if that is in pieces."""


@dataclass(slots=True)
class Head:
    """What to do with a response of the application.

    Attributes:
        status: to send.
        fields: to send.
        found: a stored response to send instead.
        writer: takes the body that is to be stored.
        after: steps to take before the response is sent, if any.

    """

    status: int
    fields: Fields
    found: Found | None = None
    writer: Writer | None = None
    after: Any = None


class Exchange:
    """One request and its response."""

    __slots__ = ("client", "core", "look", "request", "settings", "url")

    def __init__(self, core: Core, client: Any, request: Request) -> None:
        """Begin an exchange; nothing is read yet."""
        self.core, self.client, self.request = core, client, request
        self.settings: Settings = core.settings_of(request)
        self.look = Lookup(core, request, self.settings)
        host, path, query = self.settings.url or (request.host, request.path, request.query)
        self.url = host + path + (b"?" + query if query else b"")

    def lease(self, fetch: Fetch) -> Lease:
        """Return what a fetch may store."""
        return Lease(self.core, self.client, self.look, fetch)

    # ---- what a request may do ----------------------------------------------------------------

    @property
    def bypass(self) -> bytes | None:
        """Why this request goes past the cache, or None."""
        request = self.request
        if request.method not in {"GET", "HEAD"}:
            return b"method"
        if self.settings.bypass:
            return b"bypass; detail=rule"
        if request.is_odd:
            return b"bypass; detail=odd-request"
        named = request.named
        if b"if-match" in named or b"if-unmodified-since" in named or b"upgrade" in named:
            return b"bypass; detail=conditional"
        if "no-store" in request.directives and not self.settings.ignore_request_directives:
            return b"request; detail=no-store"
        return None

    @property
    def _fetches_alone(self) -> bool:
        """Whether the response is likely this request's only, so that others must not wait for it."""
        request = self.request
        return (
            request.method != "GET"
            or b"authorization" in request.named
            or b"range" in request.named
        )

    def quick(self, keys: list[str], found: dict[str, Any]) -> Found | None:
        """Return the reply if what was read first is a fresh response in one record: the path of a hit."""
        look = self.look
        if look.take(keys, found):
            return None
        entry = look.entry
        if entry is None or entry.write_id:
            return None
        now = self.core.clock()
        use = look.use(now)
        if use is None or use.kind != "fresh" or look.is_due_early(now):
            return None
        self.core.counters["hits"] += 1
        return Found(reply_of(entry, self.request, now))

    @property
    def collapses(self) -> bool:
        """Whether requests like this one wait for each other, by what was read."""
        if self._fetches_alone or isinstance(self.look.record, Uncacheable):
            return False
        use = self.look.use(self.core.clock())
        return use is None or (use.kind == "validate" and use.why in {"stale", "must-revalidate"})

    def stale(self) -> Found | None:
        """Return the stale reply of a key that is being refreshed by this process already."""
        now = self.core.clock()
        use, entry = self.look.use(now), self.look.entry
        if use is None or use.kind != "stale" or entry is None or entry.write_id:
            return None
        self.core.counters["stale"] += 1
        return Found(reply_of(entry, self.request, now, b"hit; detail=stale"))

    def waited_too_long(self) -> Fetch:
        """Return the fetch of a request that has waited for another's in vain."""
        self.core.counters["waits_given_up"] += 1
        return self._past(b"uri-miss; detail=waited")

    # ---- the slow path --------------------------------------------------------------------------

    def open(self) -> Generator[Any, Any, Found | Fetch]:
        """Decide what responds this request: a plan."""
        try:
            return (yield from self._open())
        except GlasscacheError:
            self.core.counters["store_errors"] += 1
            return self._past(b"bypass; detail=store-failed")

    def _open(self) -> Generator[Any, Any, Found | Fetch]:
        core, look = self.core, self.look
        pause, waited_from, has_waited = _POLL_FIRST_S, core.clock(), False
        while True:
            yield from self._read()
            if look.site is None and not (yield from self._make_site()):
                return self._past(b"bypass; detail=store-failed")
            now = core.clock()
            use = look.use(now)
            if use is not None and use.kind in {"fresh", "stale"}:
                found = yield from self._use(use.kind, has_waited)
                if found is not None:
                    return found
                continue
            action = yield from self._unshared(use, core.clock() - waited_from)
            if action is not None:
                return action
            if not self._fetches_alone:
                fetch = yield from (self._lease_cold() if use is None else self._lease_stale())
                if fetch is not None:
                    return fetch
            if core.clock() - waited_from >= core.wait:
                return self.waited_too_long()
            has_waited = True
            yield Sleep(pause)
            pause = min(2 * pause, _POLL_LAST_S)
            look.reset()

    def _unshared(
        self, use: Use | None, waited: float
    ) -> Generator[Any, Any, Found | Fetch | None]:
        """Return what a request does that neither uses what is stored nor waits for another's fetch."""
        look = self.look
        if "only-if-cached" in self.request.directives:
            return Found(gateway_timeout())
        if isinstance(look.record, Uncacheable):
            return self._past(b"uri-miss; detail=uncacheable", may_store=True)
        if use is not None and use.kind == "pass":
            fetch = self._past(b"bypass; detail=heuristic")
            fetch.entry = None  # not even instead of an error
            return fetch
        if use is not None and (use.why.startswith("request") or use.why == "no-cache"):
            why = b"request" if use.why.startswith("request") else b"stale; detail=no-cache"
            return (yield from self._validate_alone(why))
        is_fetched = isinstance(look.record, Pending) and waited < ALONE_WAIT_S
        if self._fetches_alone and not is_fetched:
            return (yield from self._past_alone(b"stale" if use else b"uri-miss"))
        return None

    def _read(self) -> Generator[Any, Any, None]:
        look = self.look
        keys = look.take([], {}) if look.keys_read else look.first_keys()
        while keys:
            found = yield call(self.client, "get_many", keys)
            keys = look.take(keys, found)

    def _make_site(self) -> Generator[Any, Any, bool]:
        """Store the record of purges that is not there; whether there is one now."""
        key = self.core.site_key
        yield call(self.client, "add", key, new_site().encode())
        data = yield call(self.client, "get", key)
        self.look.reset()
        yield from self._read()
        return self.core.site_of(data) is not None and self.look.site is not None

    def _use(self, kind: str, has_waited: bool) -> Generator[Any, Any, Found | None]:
        """Return a stored response to send; None if a piece of it is lost."""
        look, core = self.look, self.core
        entry = look.entry
        assert entry is not None  # noqa: S101 - a use has an entry
        now = core.clock()
        refresh = None
        if kind == "stale" or (kind == "fresh" and look.is_due_early(now)):
            refresh = yield from self._lease_stale()
        detail = b"hit; detail=stale" if kind == "stale" else b"hit"
        if has_waited:
            detail += b"; collapsed"
        reply = reply_of(entry, self.request, now, detail)
        pieces = None
        if entry.write_id and reply.has_body:
            pieces = yield from self.pieces(entry, reply.start // PIECE_BYTES)
            if pieces is None:
                yield call(self.client, "delete", look.target)
                core.counters["lost_pieces"] += 1
                look.reset()
                return None
        core.counters["stale" if kind == "stale" else "hits"] += 1
        return Found(reply, refresh, pieces)

    def pieces(self, entry: Entry, first: int) -> Generator[Any, Any, list[bytes] | None]:
        """Return the pieces of a body from the first on, as many as one read takes; None if one is lost."""
        size = PIECE_BYTES
        count = min(WINDOW_PIECES, -(-entry.length // size) - first)
        keys = [self.core.piece_key(entry.write_id, first + index) for index in range(count)]
        found = yield call(self.client, "get_many", keys)
        pieces: list[bytes] = []
        for index, key in enumerate(keys, first):
            piece: Any = found.get(key)
            wanted = min(size, entry.length - index * size)
            if type(piece) is not bytes or len(piece) != wanted:
                return None
            pieces.append(piece)
        return pieces

    # ---- which request fetches--------------------------------------------------------------------------

    def _lease_cold(self) -> Generator[Any, Any, Fetch | None]:
        """Reserve a key that holds nothing usable; None if another fetches it."""
        core, look = self.core, self.look
        now = core.clock()
        if isinstance(look.record, Pending) and now - look.record.begun < core.lease:
            return None
        mark = Pending(look.digest, new_token(), now)
        data, life = encode_mark(mark), max(1, int(core.lease * 2))
        if look.record is None and not look.is_unreadable:
            if not (yield call(self.client, "add", look.target, data, ttl=life)):
                return None
        else:
            # A mark that has had its time, a purged response, or something unreadable.
            held = yield call(self.client, "gets", look.target)
            if held is None or not look.holds(held[0]):
                return None
            if (yield call(self.client, "cas", look.target, data, held[1], ttl=life)) is not True:
                return None
        held = yield call(self.client, "gets", look.target)
        if held is None or held[0] != data:
            return None
        why = b"vary-miss" if look.mark is not None else b"uri-miss"
        core.counters["misses"] += 1
        return Fetch(
            why, self._plain_fields(), "GET", None, held[1], may_store=True, is_leased=True
        )

    def _lease_stale(self) -> Generator[Any, Any, Fetch | None]:
        """Take the right to refresh what is stored; None if another has it."""
        core, look = self.core, self.look
        token = new_token()
        life = max(1, int(core.lease))
        if not (yield call(self.client, "add", f"{look.target}:l", token.encode(), ttl=life)):
            return None
        held = yield call(self.client, "gets", look.target)
        if held is None or not look.holds(held[0]):
            # Another was quicker: what it stored is to be read.
            yield call(self.client, "delete", f"{look.target}:l")
            return None
        core.counters["refreshes"] += 1
        return self._validating(b"stale", held[1], token)

    def _validate_alone(self, why: bytes) -> Generator[Any, Any, Fetch]:
        """Validate what is stored for this request only."""
        held = yield call(self.client, "gets", self.look.target)
        unique = held[1] if held is not None and self.look.holds(held[0]) else None
        fetch = self._validating(why, unique, "")
        if unique is None or self._fetches_alone:
            fetch.may_store = False
        return fetch

    def _validating(self, why: bytes, unique: int | None, token: str) -> Fetch:
        entry = self.look.entry
        fields = self._plain_fields()
        if entry is not None and not self._fetches_alone:
            if (tag := entry.field(b"etag")) is not None:
                fields.append((b"if-none-match", tag))
            if (changed := entry.field(b"last-modified")) is not None:
                fields.append((b"if-modified-since", changed))
        elif self._fetches_alone:
            fields = self.request.fields
        method = self.request.method if self._fetches_alone else "GET"
        return Fetch(why, fields, method, entry, unique, True, bool(token), token)

    def _plain_fields(self) -> Fields:
        """Return the request's fields without what concerns this client's copy only."""
        dropped = CONDITIONAL | {b"if-range", b"range"}
        fields = [pair for pair in self.request.fields if pair[0] not in dropped]
        return self._cookies(fields)

    def _cookies(self, fields: Fields) -> Fields:
        """Drop the cookies that rules keep from the application."""
        passed = self.settings.pass_cookies
        if passed is None or b"cookie" not in self.request.named:
            return fields
        rest = "; ".join(f"{k}={v}" for k, v in self.request.cookies().items() if k in passed)
        fields = [pair for pair in fields if pair[0] != b"cookie"]
        return [*fields, (b"cookie", rest.encode("latin-1"))] if rest else fields

    def _past_alone(self, why: bytes) -> Generator[Any, Any, Fetch]:
        """Return a fetch without a lease; what it may store replaces a mark that a purge removes."""
        may_store = self.request.method == "GET"
        if may_store and self.look.record is None and not self.look.is_unreadable:
            mark = encode_mark(Uncacheable(self.look.digest, "", new_token()))
            may_store = yield call(self.client, "add", self.look.target, mark, ttl=UNCACHEABLE_S)
            self.look.put(mark)
        return self._past(why, may_store=may_store)

    def _past(self, why: bytes, *, may_store: bool = False) -> Fetch:
        """Return a fetch without a lease."""
        self.core.counters["passes"] += 1
        may_store = may_store and b"range" not in self.request.named
        fields = self.request.fields
        if may_store:
            fields = self._plain_fields()
        return Fetch(why, fields, self.request.method, self.look.entry, None, may_store)

    # ---- the application's response -----------------------------------------------------------------

    def receive(self, fetch: Fetch, status: int, fields: Fields, sent: float) -> Head:
        """Return what to do with the head of the application's response, requested at `sent`."""
        request, now, entry = self.request, self.core.clock(), fetch.entry
        if fetch.why == b"method" and not request.is_safe:
            head = Head(status, self._with_status(fields, fetch, status))
            if 200 <= status < 400:  # noqa: PLR2004 - an error changes nothing
                head.after = self._invalidate(fields)
            return head
        if entry is not None:
            if status in STALE_FOR_ERROR and may_replace_error(entry, now, is_exception=False):
                return self._stale_instead(fetch, entry, now)
            if status == 304 and fetch.fields is not request.fields:  # noqa: PLR2004
                return self._validated(fetch, entry, fields, sent, now)
        if fetch.may_store and fetch.method == "GET":
            return self._storing(fetch, status, fields, sent, now)
        head = Head(status, self._with_status(fields, fetch, status))
        if fetch.method == "HEAD" and entry is not None and status == 200:  # noqa: PLR2004
            head.after = self._compare_head(fields, entry)
        return head

    def _storing(self, fetch: Fetch, status: int, fields: Fields, sent: float, now: float) -> Head:
        """Return the head of a response that is stored unless it may not be."""
        core, request, settings = self.core, self.request, self.settings
        if core.rules is not None:
            settings = core.rules.decide_response(settings, request, status, fields)
            if settings.strip_cookies:
                fields = [pair for pair in fields if pair[0] != b"set-cookie"]
        life = lifetime_of(request, settings, status, fields, sent, now)
        if isinstance(life, Refusal):
            sent_fields = self._with_status(fields, fetch, status, life.why)
            return Head(status, sent_fields, after=self.lease(fetch).refuse(life, status))
        sent_fields = self._with_status(fields, fetch, status)
        entry = self._entry(settings, life, status, fields)
        writer = Writer(self.lease(fetch), request, entry, life, settings, sent)
        if writer.length_stated is not None and writer.length_stated > writer.max_bytes:
            return Head(
                status, sent_fields, after=self.lease(fetch).refuse(Refusal("too-large"), status)
            )
        head = Head(status, sent_fields, writer=writer)
        if not CONDITIONAL.isdisjoint(request.named) and status == 200:  # noqa: PLR2004
            # The condition was kept from the application: it is this cache that responds it.
            reply = reply_of(entry, request, now, b"fwd=" + fetch.why)
            if reply.status == 304:  # noqa: PLR2004
                head.status, head.fields = 304, reply.fields
        return head

    def _entry(self, settings: Settings, life: Lifetime, status: int, fields: Fields) -> Entry:
        site = self.look.site
        tags = [tag.encode() for tag in settings.tags]
        if settings.tag_field is not None:
            for name, value in fields:
                if name == settings.tag_field:
                    tags += value.replace(b",", b" ").split()
        return Entry(
            self.look.digest, life.born, life.fresh, life.swr, life.sie, status, life.flags,
            site.seq if site is not None else 0, 0, 0, 0, kept_fields(fields),
            tuple(dict.fromkeys(tags)), b"", self.url,
        )  # fmt: skip

    def _with_status(self, fields: Fields, fetch: Fetch, status: int, detail: str = "") -> Fields:
        value = CACHE_NAME + b"; fwd=" + fetch.why
        if detail and b"detail=" not in fetch.why:
            value += b"; detail=" + detail.encode()
        if fetch.entry is not None:
            value += b"; fwd-status=%d" % status
        return [*fields, (b"cache-status", value)]

    def _validated(
        self, fetch: Fetch, entry: Entry, fields: Fields, sent: float, now: float
    ) -> Head:
        """Return the stored response, which a 304 made fresh again (RFC 9111, section 4.3.4)."""
        core = self.core
        merged = merged_fields(entry.fields, fields)
        settings = self.settings
        if core.rules is not None:
            settings = core.rules.decide_response(settings, self.request, entry.status, merged)
        dated = [*merged, *(pair for pair in fields if pair[0] == b"age")]
        life = lifetime_of(self.request, settings, entry.status, dated, sent, now)
        core.counters["validated"] += 1
        if isinstance(life, Refusal):
            fresh = replace(entry, fields=merged)
            after = self.lease(fetch).refuse(life, 304)
        else:
            fresh = replace(
                entry, fields=merged, born=life.born, fresh=life.fresh, swr=life.swr, sie=life.sie,
                flags=life.flags, seq=self.look.site.seq if self.look.site else entry.seq,
            )  # fmt: skip
            after = self._store_validated(fetch, fresh, life)
        reply = reply_of(fresh, self.request, now, b"fwd=" + fetch.why + b"; fwd-status=304")
        return Head(reply.status, reply.fields, Found(reply), after=after)

    def _stale_instead(self, fetch: Fetch, entry: Entry, now: float) -> Head:
        self.core.counters["stale_for_error"] += 1
        reply = reply_of(entry, self.request, now, b"hit; detail=stale-if-error")
        return Head(reply.status, reply.fields, Found(reply), after=self.lease(fetch).give_up())

    def failed(self, fetch: Fetch) -> Head | None:
        """Return what to send instead of an exception of the application, or None to raise it."""
        now = self.core.clock()
        entry = fetch.entry
        self.core.counters["application_errors"] += 1
        if (
            entry is None
            or self.request.method not in {"GET", "HEAD"}
            or not may_replace_error(entry, now, is_exception=True)
        ):
            return None
        return self._stale_instead(fetch, entry, now)

    # ---- steps after a response -----------------------------------------------------------------------

    def _store_validated(
        self, fetch: Fetch, entry: Entry, life: Lifetime
    ) -> Generator[Any, Any, None]:
        lease, now = self.lease(fetch), self.core.clock()
        writer = Writer(lease, self.request, entry, life, self.settings, now)
        yield from writer.put()

    def _compare_head(self, fields: Fields, entry: Entry) -> Generator[Any, Any, None]:
        """Remove what a HEAD shows to have changed (RFC 9111, section 4.3.5)."""
        named = dict(fields)
        for name in (b"etag", b"last-modified", b"content-length"):
            known = entry.field(name)
            if name in named and known is not None and named[name] != known:
                try:
                    yield call(self.client, "delete", self.look.key)
                except GlasscacheError:
                    self.core.counters["store_errors"] += 1
                return

    def _invalidate(self, fields: Fields) -> Generator[Any, Any, None]:
        """Remove what an unsafe request may have changed (RFC 9111, section 4.4)."""
        from glasscache.web._urls import targets  # noqa: PLC0415 - unsafe requests are few

        self.core.counters["invalidations"] += 1
        for key in targets(self.core, self.request, self.settings, fields):
            try:
                yield call(self.client, "delete", key)
            except GlasscacheError:
                self.core.counters["store_errors"] += 1
