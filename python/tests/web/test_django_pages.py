"""Views with `cached_page`: kept for everyone or not at all, with tags, rendered once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from glasscache import Server

PROGRAM = """
    import sys, threading, time
    import django
    from django.conf import settings
    settings.configure(
        ALLOWED_HOSTS=["*"], SECRET_KEY="s", USE_I18N=True,
        CACHES={"default": {"BACKEND": "glasscache.contrib.django.GlassCache", "LOCATION": sys.argv[1]},
                "other": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    )
    django.setup()
    from django.contrib.sessions.backends.signed_cookies import SessionStore
    from django.http import HttpResponse, StreamingHttpResponse
    from django.test import RequestFactory
    from django.utils import translation
    from django.views.decorators.vary import vary_on_headers
    from glasscache.contrib import django_pages
    from glasscache.contrib.django_pages import cached_page, invalidate_tag

    get, calls = RequestFactory().get, []

    def view(request, number=0):
        calls.append(number)
        return HttpResponse(f"{number} {len(calls)}", headers={"X-Own": "yes"}, content_type="text/plain")

    def fresh(check, view, request, *args):
        before = len(calls)
        first, second = view(request(), *args), view(request(), *args)
        is_kept = len(calls) == before + 1
        assert is_kept == check, (view, is_kept)
        if is_kept:
            assert first.content == second.content and second["X-Own"] == "yes"
            assert second["Content-Type"] == "text/plain" and second.status_code == 200
        return first

    page = cached_page(60, tags=lambda request, number: ["products", f"product-{number}"])(view)
    fresh(True, page, lambda: get("/p/1"), 1)
    fresh(True, page, lambda: get("/p/2"), 2)
    before = len(calls)
    invalidate_tag("product-1")
    page(get("/p/1"), 1), page(get("/p/2"), 2)
    assert len(calls) == before + 1
    invalidate_tag("products")
    page(get("/p/1"), 1), page(get("/p/2"), 2)
    assert len(calls) == before + 3
    fresh(True, page, lambda: get("/p/1?a=1"), 1)
    fresh(False, page, lambda: RequestFactory().post("/p/1"), 1)
    fresh(False, page, lambda: get("/p/9", headers={"authorization": "Basic x"}), 9)
    with translation.override("de"):
        fresh(True, page, lambda: get("/p/1"), 1)

    def refused(change, path):
        def one(request):
            response = view(request)
            change(response)
            return response
        one.__qualname__ = path
        fresh(False, cached_page(60)(one), lambda: get(path))

    refused(lambda r: r.set_cookie("a", "b"), "/cookie")
    refused(lambda r: r.__setitem__("Cache-Control", "max-age=3, private"), "/private")
    refused(lambda r: r.__setitem__("Vary", "Cookie"), "/vary")
    refused(lambda r: r.__setitem__("Vary", "*"), "/star")
    refused(lambda r: setattr(r, "status_code", 404), "/404")

    from django.contrib.sessions.middleware import SessionMiddleware
    from django.middleware.csrf import CsrfViewMiddleware, get_token

    def personal(use, path, wrap=SessionMiddleware):
        def one(request):
            use(request)
            return view(request)
        one.__qualname__ = path
        fresh(False, wrap(cached_page(60)(one)), lambda: get(path, headers={"cookie": "theme=dark"}))

    personal(lambda request: request.session.get("user"), "/session")
    personal(lambda request: request.COOKIES.get("theme"), "/cookies")
    personal(lambda request: "theme" in request.COOKIES, "/has-cookie")
    personal(lambda request: dict(request.COOKIES.items()), "/all-cookies")
    personal(get_token, "/csrf", CsrfViewMiddleware)
    same = SessionMiddleware(cached_page(60)(view))
    fresh(True, same, lambda: get("/same", headers={"cookie": "theme=dark"}))

    varied = cached_page(60, vary_on=["X-Plan"])(vary_on_headers("X-Plan")(view))
    for plan in ("free", "gold"):
        fresh(True, varied, lambda: get("/v", headers={"x-plan": plan}))
    bodies = {varied(get("/v", headers={"x-plan": plan})).content for plan in ("free", "gold")}
    assert len(bodies) == 2

    def slow(request):
        time.sleep(0.2)
        return view(request)

    once, before = cached_page(60)(slow), len(calls)
    threads = [threading.Thread(target=lambda: once(get("/slow"))) for _ in range(20)]
    [one.start() for one in threads], [one.join() for one in threads]
    assert len(calls) == before + 1, len(calls) - before

    for wrong in (lambda: cached_page(60, cache="other")(view)(get("/o")),):
        try:
            wrong()
        except TypeError as error:
            assert "other" in str(error)
        else:
            raise AssertionError
    async def later(request): ...
    try:
        cached_page(60)(later)
    except TypeError as error:
        assert "CacheASGI" in str(error)
    print("done")
"""


def test_a_view_is_kept_for_everyone_or_not_at_all(glasscache_server: Server) -> None:
    pytest.importorskip("django", reason="django is not installed")
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), glasscache_server.address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"
