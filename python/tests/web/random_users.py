"""Random requests of many users through a cache, under random rules: nobody gets what was made for another.

The applications put the user's name into every response that they make with a cookie, a header or a session.
Run as a program it tests Django, whose settings belong to a process: `-m web.random_users ADDRESS COUNT`.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from typing import TYPE_CHECKING, Any

from glasscache import AsyncClient, Client
from glasscache.web import CacheASGI, CacheSettings, CacheWSGI

from web.harness import Reply, send_request
from web.random_requests import random_rules
from web.test_wsgi import send_request as send_wsgi_request

if TYPE_CHECKING:
    from collections.abc import Callable

USER_COUNT = 50
REQUESTS_PER_RULES = 150
_LIFETIMES = (
    {}, {}, {"Cache-Control": "max-age=60"}, {"Cache-Control": "max-age=0", "ETag": '"one for all"'},
    {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, {"Expires": "Mon, 01 Jan 2035 00:00:00 GMT"},
    {"Cache-Control": "no-cache", "ETag": '"one for all"'}, {"Cache-Control": "private, max-age=60"},
    {"Cache-Control": "max-age=60", "Vary": "Cookie, Authorization, X-User"},
    {"Cache-Control": "max-age=60, stale-if-error=60"}, {"Cache-Control": "max-age=60", "Vary": "Accept"},
)  # fmt: skip
_STATUSES = (200, 200, 200, 200, 404, 500, 301, 302, 403)
PATH_COUNT = 24


def respond(path: str, user: str, *, has_etag: bool) -> tuple[int, dict[str, str], bytes]:
    """Return the response that an application makes for a user."""
    number = int(re.sub("[^0-9]", "", path) or 0)
    headers = {"Content-Type": "text/html", **_LIFETIMES[number % len(_LIFETIMES)]}
    if number % 5 == 0 and user != "visitor":
        headers["Set-Cookie"] = f"session={user}"
    status = _STATUSES[number % len(_STATUSES)]
    if status in {301, 302}:
        headers["Location"] = f"/for/{user}"
    if "ETag" in headers:
        headers["ETag"] = f'"{user}"'
        if has_etag and status == 200:
            return 304, headers, b""
    return status, headers, f"<{user}>".encode()


def user_of(cookies: Any, headers: Any) -> str:
    """Return whose request an application takes it for."""
    named = cookies.get("session") or cookies.get("lang") or cookies.get("theme")
    return named or headers.get("authorization") or headers.get("x-user") or "visitor"


def random_fields(rng: random.Random) -> tuple[str, dict[str, str]]:
    """Return a user and the fields of a request, in any way in which users are told apart."""
    user = f"user{rng.randrange(USER_COUNT)}"
    match rng.randrange(9):
        case 0:
            fields = {"cookie": f"session={user}; other=1"}
        case 1:
            fields = {"cookie": f"lang={user}"}
        case 2:
            fields = {"cookie": f"x=1;  theme = {user}"}
        case 3:
            fields = {"authorization": user}
        case 4:
            fields = {"x-user": user}
        case 5:
            fields = {"cookie": f"session=user0; session={user}"}
        case _:
            user, fields = "visitor", {}
    if rng.random() < 0.1:
        fields["if-none-match"] = f'"{user}"'
    if rng.random() < 0.1:
        fields["cache-control"] = rng.choice(
            ["no-cache", "max-age=1", "max-stale", "only-if-cached"]
        )
    return user, fields


def check(user: str, path: str, rules: Any, reply: Reply) -> None:
    """Raise if a reply was made for somebody else."""
    names = {user, "visitor"}
    texts = [reply.body.decode(), reply["set-cookie"] or "", reply["location"] or ""]
    found = {name for text in texts for name in re.findall(r"user\d+|visitor", text)}
    details = (user, path, reply.fields, texts, [(rule.when, rule.then) for rule in rules.rules])
    assert found <= names, details


def starlette_app() -> Any:
    from starlette.requests import Request
    from starlette.responses import Response

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope)
        user = user_of(request.cookies, request.headers)
        etag = request.headers.get("if-none-match")
        status, headers, body = respond(scope["path"], user, has_etag=etag == f'"{user}"')
        await Response(body, status, headers)(scope, receive, send)

    return app


def plain_wsgi_app(environ: Any, start_response: Any) -> list[bytes]:
    from http.cookies import SimpleCookie

    cookies = {
        name: morsel.value for name, morsel in SimpleCookie(environ.get("HTTP_COOKIE", "")).items()
    }
    headers = {
        name[5:].lower().replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    user = user_of(cookies, headers)
    has_etag = headers.get("if-none-match") == f'"{user}"'
    status, response_headers, body = respond(environ["PATH_INFO"], user, has_etag=has_etag)
    start_response(f"{status} -", list(response_headers.items()))
    return [body]


def django_app() -> Any:
    """Return a site with Django's usual middleware, which takes users from signed sessions as well."""
    import django
    from django.conf import settings

    settings.configure(
        ALLOWED_HOSTS=["*"], SECRET_KEY="s", ROOT_URLCONF=__name__, USE_TZ=True,  # noqa: S106
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        MIDDLEWARE=[
            "django.middleware.security.SecurityMiddleware",
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.locale.LocaleMiddleware", "django.middleware.common.CommonMiddleware",
            "django.middleware.http.ConditionalGetMiddleware",
        ],
    )  # fmt: skip
    django.setup()
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import re_path

    def view(request: Any) -> Any:
        user = user_of(request.COOKIES, request.headers)
        if user == "visitor" and request.headers.get("x-session"):
            user = request.session["user"] = request.headers["x-session"]
        status, headers, body = respond(request.path, user, has_etag=False)
        return HttpResponse(body, status=status, headers=headers)

    globals()["urlpatterns"] = [re_path(".*", view)]
    return get_wsgi_application()


def run_wsgi(app: Any, address: str, rng: random.Random, count: int) -> int:
    """Send requests through a WSGI cache; return how many replies came from the store."""
    hit_count = 0
    with Client(address, timeout=5) as client:
        for number in range(-(-count // REQUESTS_PER_RULES)):
            rules = random_rules(rng)
            settings = CacheSettings(version=f"wsgi {rng.random()} {number}")
            cache = CacheWSGI(app, client, rules, settings)
            for _ in range(REQUESTS_PER_RULES):
                (user, fields), path = random_fields(rng), f"/shop/{rng.randrange(PATH_COUNT)}"
                check(user, path, rules, send_wsgi_request(cache, path, fields=fields))
            cache.settle()
            hit_count += cache.counters["hits"]
    return hit_count


async def run_asgi(app: Any, address: str, rng: random.Random, count: int) -> int:
    """Send requests through an ASGI cache, ten at a time; return how many replies came from the store."""
    hit_count = 0
    async with AsyncClient(address, timeout=5) as client:
        for number in range(-(-count // REQUESTS_PER_RULES)):
            rules = random_rules(rng)
            settings = CacheSettings(version=f"asgi {rng.random()} {number}")
            cache = CacheASGI(app, client, rules, settings)

            async def request_once(rules: Any = rules, cache: Any = cache) -> None:
                (user, fields), path = random_fields(rng), f"/shop/{rng.randrange(PATH_COUNT)}"
                check(user, path, rules, await send_request(cache, path, fields=fields))

            for _ in range(REQUESTS_PER_RULES // 10):
                await asyncio.gather(*(request_once() for _ in range(10)))
            await cache.settle()
            hit_count += cache.counters["hits"]
    return hit_count


RUNS: dict[str, Callable[[str, random.Random, int], int]] = {
    "starlette": lambda address, rng, count: asyncio.run(
        run_asgi(starlette_app(), address, rng, count)
    ),
    "wsgi": lambda address, rng, count: run_wsgi(plain_wsgi_app, address, rng, count),
}

if __name__ == "__main__":
    program_seed = random.randrange(2**32)
    sys.stdout.write(f"seed {program_seed}\n")
    hits = run_wsgi(django_app(), sys.argv[1], random.Random(program_seed), int(sys.argv[2]))
    sys.stdout.write(f"hits {hits}\n")
