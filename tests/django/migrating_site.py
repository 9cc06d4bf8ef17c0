"""A Django site with one backend, as a process that stores or finds values of every kind.

`backend_migration.py` calls it with JSON: the settings of the cache, a folder for the cookies of sessions,
how many values of each kind, and `mode`: "store", "find", or "mix", which does both at random until its
standard input ends.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import json
import logging
import random
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

SITE_SETTINGS = json.loads(sys.argv[1])


class WarningCounter(logging.Handler):
    """Counts warnings of the backend."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        type(self).count += record.levelno >= logging.WARNING


logging.getLogger("glasscache.django").addHandler(WarningCounter())
logging.getLogger("glasscache.django").propagate = False
logging.getLogger("django.request").setLevel(logging.CRITICAL)

import django  # noqa: E402
from django.conf import settings  # noqa: E402

settings.configure(
    DEBUG=False,
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="the same in all processes",  # noqa: S106 - of a test
    ROOT_URLCONF=__name__,
    CACHES={"default": SITE_SETTINGS["cache"]},
    INSTALLED_APPS=["django.contrib.sessions"],
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    USE_TZ=True,
)
django.setup()

from django.core.cache import cache  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.template import engines  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402
from django.utils.safestring import SafeString, mark_safe  # noqa: E402
from django.views.decorators.cache import cache_page  # noqa: E402

WRITER = SITE_SETTINGS["writer"]


class ExampleObject:
    """An object of the application's own class."""

    def __init__(self, number: int) -> None:
        self.number, self.name = number, f"thing {number}"

    def __eq__(self, other: object) -> bool:
        return type(other) is ExampleObject and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]


def test_value(kind: str, n: int) -> Any:
    """Return the value of a kind and number."""
    day = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=n)
    inner = [n, (n, "b"), {n, -n}, day, decimal.Decimal(n) / 7, uuid.UUID(int=n), None, True, n / 3]
    values = {
        "text": f"täxt {n} " * (1 + n % 200),
        "object": {
            "things": [ExampleObject(n)],
            n: inner,
            "ids": list(range(n % 90)),
            "pad": "x" * (n * 17 % 5000),
        },
        "int": (-1) ** n * n * 10 ** (n % 30),
        "bytes": bytes([n % 256, 0, 255]) * (1 + n * 13 % 900),
        "bytearray": bytearray(b"%d" % n * (1 + n % 40)),
        "scalar": [n % 2 == 0, n / 7, None if n % 4 == 0 else (n,)][n % 3] if n % 12 else float(n),
        "safe": mark_safe(f"<b>{n}</b>"),  # noqa: S308 - what templates keep
    }
    return values[kind]


VALUE_KINDS = ("text", "object", "int", "bytes", "bytearray", "scalar", "safe")
KINDS = (*VALUE_KINDS, "page", "fragment", "session")
KINDS_WITHOUT_SESSION = (*VALUE_KINDS, "page", "fragment")

FRAGMENT = engines["django"].from_string(
    "{% load cache %}{% cache 600 part n %}part {{ n }} by {{ writer }}{% endcache %}"
)


@cache_page(600)
def page(_: HttpRequest, n: int) -> HttpResponse:
    return HttpResponse(f"page {n} by {WRITER}")


def fragment(_: HttpRequest, n: int) -> HttpResponse:
    return HttpResponse(FRAGMENT.render({"n": n, "writer": WRITER}))


def session(request: Any, n: int) -> HttpResponse:
    number = request.session.get("n")
    if number is None:
        request.session["n"] = n
    return HttpResponse(f"session {'' if number is None else number}")


urlpatterns = [
    path("page/<int:n>", page),
    path("fragment/<int:n>", fragment),
    path("session/<int:n>", session),
]

counts: collections.Counter[str] = collections.Counter()
first_errors: list[str] = []
OTHER_WRITER = "old" if WRITER == "new" else "new"


def record_exception(error: BaseException) -> None:
    counts["exceptions"] += 1
    if len(first_errors) < 3:
        first_errors.append(f"{type(error).__name__}: {error}"[:300])


def key_of(kind: str, n: int, writer: str) -> str:
    return f"{kind}:{'ключ' if n % 5 == 0 else 'key'}:{n}:{writer}"


def is_same(a: Any, b: Any) -> bool:
    # Types that pylibmc itself does not keep: it reads a subclass of str as str, and a bool as a number.
    types_not_kept = [{str, SafeString}, {bool, int}] if SITE_SETTINGS["name"] == "pylibmc" else []
    return a == b and (type(a) is type(b) or {type(a), type(b)} in types_not_kept)


def store(kind: str, n: int, writer: str) -> None:
    if kind in VALUE_KINDS:
        value = test_value(kind, n)
        if n % 3:
            cache.set(key_of(kind, n, writer), value, 600)
        else:
            cache.set_many({key_of(kind, n, writer): value}, 600)
    else:
        request_page(kind, n)


def find_and_count(kind: str, n: int, writer: str) -> None:
    if kind in VALUE_KINDS:
        key, missing = key_of(kind, n, writer), object()
        cached = cache.get_many([key]).get(key, missing) if n % 3 == 0 else cache.get(key, missing)
        # Django's PyMemcacheCache cannot distinguish a stored None from a miss.
        is_found = cached is not missing
        counts["found" if is_found else "missed"] += 1
        if is_found and not is_same(cached, test_value(kind, n)):
            counts["wrong"] += 1
            if len(first_errors) < 3:
                first_errors.append(f"{key}: {cached!r:.100} of {type(cached).__name__}")
        return
    content = request_page(kind, n)
    written_content = {"session": f"session {n}"}.get(
        kind, f"{'part' if kind == 'fragment' else kind} {n} by {writer}"
    )
    own_content = {"session": "session "}.get(
        kind, f"{'part' if kind == 'fragment' else kind} {n} by {WRITER}"
    )
    if content == written_content:
        counts["found"] += 1
    elif content == own_content:
        counts["missed"] += 1
    elif content is not None:
        counts["wrong"] += 1


cookies: dict[int, str] = {}


def request_page(kind: str, n: int) -> str | None:
    """Request a page; None if the site responded with 500."""
    browser = Client(raise_request_exception=False)
    if kind == "session" and n in cookies:
        browser.cookies["sessionid"] = cookies[n]
    response = browser.get(f"/{kind}/{n}")
    if response.status_code != 200:
        counts["500"] += 1
        if len(first_errors) < 3 and response.exc_info:
            first_errors.append(f"500: {response.exc_info[1]}"[:300])
        return None
    if kind == "session" and "sessionid" in response.cookies:
        cookies[n] = response.cookies["sessionid"].value
    return response.content.decode()


def request_any_page(kind: str, n: int) -> None:
    """Request a page that any process may have stored last."""
    content = request_page(kind, n)
    possible_contents = [
        f"{'part' if kind == 'fragment' else kind} {n} by {writer}" for writer in ("old", "new")
    ]
    if content is not None:
        counts["found" if content in possible_contents else "wrong"] += 1


def count_exceptions(function: Any, *arguments: Any) -> None:
    try:
        function(*arguments)
    except Exception as error:  # noqa: BLE001 - what is counted
        record_exception(error)


def main() -> None:
    values = SITE_SETTINGS["values"]
    numbers = range(values)
    if SITE_SETTINGS["mode"] == "store":
        for kind in KINDS:
            for n in numbers:
                count_exceptions(store, kind, n, WRITER)
        Path(SITE_SETTINGS["folder"], WRITER).write_text(json.dumps(cookies))
    elif SITE_SETTINGS["mode"] == "find":
        known = json.loads(Path(SITE_SETTINGS["folder"], OTHER_WRITER).read_text())
        cookies.update({int(n): cookie for n, cookie in known.items()})
        for kind in KINDS:
            for n in numbers:
                count_exceptions(find_and_count, kind, n, OTHER_WRITER)
    else:
        rng = random.Random(SITE_SETTINGS["seed"])
        ended = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        while not ended.is_set():
            kind, n = rng.choice(KINDS_WITHOUT_SESSION), rng.choice(numbers)
            if kind not in VALUE_KINDS:
                count_exceptions(request_any_page, kind, n)
            elif rng.random() < 0.3:
                count_exceptions(store, kind, n, rng.choice([WRITER, OTHER_WRITER]))
            else:
                count_exceptions(find_and_count, kind, n, rng.choice([WRITER, OTHER_WRITER]))
    print(json.dumps({**counts, "warnings": WarningCounter.count, "errors": first_errors}))


if __name__ == "__main__":
    sys.modules["migrating_site"] = sys.modules["__main__"]
    ExampleObject.__module__ = "migrating_site"
    main()
