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


def example_value(kind: str, number: int) -> Any:
    """Return the value of a kind and number."""
    day = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=number)
    items = [
        number,
        (number, "b"),
        {number, -number},
        day,
        decimal.Decimal(number) / 7,
        uuid.UUID(int=number),
        None,
        True,
        number / 3,
    ]
    value_by_kind = {
        "text": f"täxt {number} " * (1 + number % 200),
        "object": {
            "things": [ExampleObject(number)],
            number: items,
            "ids": list(range(number % 90)),
            "pad": "x" * (number * 17 % 5000),
        },
        "int": (-1) ** number * number * 10 ** (number % 30),
        "bytes": bytes([number % 256, 0, 255]) * (1 + number * 13 % 900),
        "bytearray": bytearray(b"%d" % number * (1 + number % 40)),
        "scalar": [number % 2 == 0, number / 7, None if number % 4 == 0 else (number,)][number % 3]
        if number % 12
        else float(number),
        "safe": mark_safe(f"<b>{number}</b>"),  # noqa: S308 - what templates keep
    }
    return value_by_kind[kind]


VALUE_KINDS = ("text", "object", "int", "bytes", "bytearray", "scalar", "safe")
KINDS = (*VALUE_KINDS, "page", "fragment", "session")
KINDS_WITHOUT_SESSION = (*VALUE_KINDS, "page", "fragment")

FRAGMENT = engines["django"].from_string(
    "{% load cache %}{% cache 600 part n %}part {{ n }} by {{ writer }}{% endcache %}"
)


@cache_page(600)
def page(_: HttpRequest, number: int) -> HttpResponse:
    return HttpResponse(f"page {number} by {WRITER}")


def fragment(_: HttpRequest, number: int) -> HttpResponse:
    return HttpResponse(FRAGMENT.render({"n": number, "writer": WRITER}))


def session(request: Any, number: int) -> HttpResponse:
    stored_number = request.session.get("n")
    if stored_number is None:
        request.session["n"] = number
    return HttpResponse(f"session {'' if stored_number is None else stored_number}")


urlpatterns = [
    path("page/<int:number>", page),
    path("fragment/<int:number>", fragment),
    path("session/<int:number>", session),
]

counts: collections.Counter[str] = collections.Counter()
first_errors: list[str] = []
OTHER_WRITER = "old" if WRITER == "new" else "new"


def record_exception(error: BaseException) -> None:
    counts["exceptions"] += 1
    if len(first_errors) < 3:
        first_errors.append(f"{type(error).__name__}: {error}"[:300])


def key_of(kind: str, number: int, writer: str) -> str:
    return f"{kind}:{'ключ' if number % 5 == 0 else 'key'}:{number}:{writer}"


def is_same(written: Any, found: Any) -> bool:
    # Types that pylibmc itself does not keep: it reads a subclass of str as str, and a bool as a number.
    types_not_kept = [{str, SafeString}, {bool, int}] if SITE_SETTINGS["name"] == "pylibmc" else []
    return written == found and (
        type(written) is type(found) or {type(written), type(found)} in types_not_kept
    )


def store(kind: str, number: int, writer: str) -> None:
    if kind in VALUE_KINDS:
        value = example_value(kind, number)
        if number % 3:
            cache.set(key_of(kind, number, writer), value, 600)
        else:
            cache.set_many({key_of(kind, number, writer): value}, 600)
    else:
        request_page(kind, number)


def find_and_count(kind: str, number: int, writer: str) -> None:
    if kind in VALUE_KINDS:
        key, missing = key_of(kind, number, writer), object()
        cached = (
            cache.get_many([key]).get(key, missing) if number % 3 == 0 else cache.get(key, missing)
        )
        # Django's PyMemcacheCache cannot distinguish a stored None from a miss.
        is_found = cached is not missing
        counts["found" if is_found else "missed"] += 1
        if is_found and not is_same(cached, example_value(kind, number)):
            counts["wrong"] += 1
            if len(first_errors) < 3:
                first_errors.append(f"{key}: {cached!r:.100} of {type(cached).__name__}")
        return
    content = request_page(kind, number)
    written_content = {"session": f"session {number}"}.get(
        kind, f"{'part' if kind == 'fragment' else kind} {number} by {writer}"
    )
    own_content = {"session": "session "}.get(
        kind, f"{'part' if kind == 'fragment' else kind} {number} by {WRITER}"
    )
    if content == written_content:
        counts["found"] += 1
    elif content == own_content:
        counts["missed"] += 1
    elif content is not None:
        counts["wrong"] += 1


cookies: dict[int, str] = {}


def request_page(kind: str, number: int) -> str | None:
    """Request a page; None if the site responded with 500."""
    browser = Client(raise_request_exception=False)
    if kind == "session" and number in cookies:
        browser.cookies["sessionid"] = cookies[number]
    response = browser.get(f"/{kind}/{number}")
    if response.status_code != 200:
        counts["500"] += 1
        if len(first_errors) < 3 and response.exc_info:
            first_errors.append(f"500: {response.exc_info[1]}"[:300])
        return None
    if kind == "session" and "sessionid" in response.cookies:
        cookies[number] = response.cookies["sessionid"].value
    return response.content.decode()


def request_any_page(kind: str, number: int) -> None:
    """Request a page that any process may have stored last."""
    content = request_page(kind, number)
    possible_contents = [
        f"{'part' if kind == 'fragment' else kind} {number} by {writer}"
        for writer in ("old", "new")
    ]
    if content is not None:
        counts["found" if content in possible_contents else "wrong"] += 1


def count_exceptions(function: Any, *arguments: Any) -> None:
    try:
        function(*arguments)
    except Exception as error:  # noqa: BLE001 - what is counted
        record_exception(error)


def main() -> None:
    value_count = SITE_SETTINGS["values"]
    numbers = range(value_count)
    if SITE_SETTINGS["mode"] == "store":
        for kind in KINDS:
            for number in numbers:
                count_exceptions(store, kind, number, WRITER)
        Path(SITE_SETTINGS["folder"], WRITER).write_text(json.dumps(cookies))
    elif SITE_SETTINGS["mode"] == "find":
        known_cookies = json.loads(Path(SITE_SETTINGS["folder"], OTHER_WRITER).read_text())
        cookies.update({int(number): cookie for number, cookie in known_cookies.items()})
        for kind in KINDS:
            for number in numbers:
                count_exceptions(find_and_count, kind, number, OTHER_WRITER)
    else:
        rng = random.Random(SITE_SETTINGS["seed"])
        has_ended = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), has_ended.set()), daemon=True).start()
        while not has_ended.is_set():
            kind, number = rng.choice(KINDS_WITHOUT_SESSION), rng.choice(numbers)
            if kind not in VALUE_KINDS:
                count_exceptions(request_any_page, kind, number)
            elif rng.random() < 0.3:
                count_exceptions(store, kind, number, rng.choice([WRITER, OTHER_WRITER]))
            else:
                count_exceptions(find_and_count, kind, number, rng.choice([WRITER, OTHER_WRITER]))
    print(json.dumps({**counts, "warnings": WarningCounter.count, "errors": first_errors}))


if __name__ == "__main__":
    sys.modules["migrating_site"] = sys.modules["__main__"]
    ExampleObject.__module__ = "migrating_site"
    main()
