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

    def check_kept(is_expected, view, request, *args):
        before = len(calls)
        first, second = view(request(), *args), view(request(), *args)
        is_kept = len(calls) == before + 1
        assert is_kept == is_expected, (view, is_kept)
        if is_kept:
            assert first.content == second.content and second["X-Own"] == "yes"
            assert second["Content-Type"] == "text/plain" and second.status_code == 200
        return first

    page = cached_page(60, tags=lambda request, number: ["products", f"product-{number}"])(view)
    check_kept(True, page, lambda: get("/p/1"), 1)
    check_kept(True, page, lambda: get("/p/2"), 2)
    before = len(calls)
    assert invalidate_tag("product-1") is True
    page(get("/p/1"), 1), page(get("/p/2"), 2)
    assert len(calls) == before + 1
    invalidate_tag("products")
    page(get("/p/1"), 1), page(get("/p/2"), 2)
    assert len(calls) == before + 3
    check_kept(True, page, lambda: get("/p/1?a=1"), 1)
    check_kept(False, page, lambda: RequestFactory().post("/p/1"), 1)
    check_kept(False, page, lambda: get("/p/9", headers={"authorization": "Basic x"}), 9)
    with translation.override("de"):
        check_kept(True, page, lambda: get("/p/1"), 1)

    def check_not_kept_after(change, path):
        def changed_view(request):
            response = view(request)
            change(response)
            return response
        changed_view.__qualname__ = path
        check_kept(False, cached_page(60)(changed_view), lambda: get(path))

    check_not_kept_after(lambda r: r.set_cookie("a", "b"), "/cookie")
    check_not_kept_after(lambda r: r.__setitem__("Cache-Control", "max-age=3, private"), "/private")
    check_not_kept_after(lambda r: r.__setitem__("Vary", "Cookie"), "/vary")
    check_not_kept_after(lambda r: r.__setitem__("Vary", "*"), "/star")
    check_not_kept_after(lambda r: setattr(r, "status_code", 404), "/404")

    from django.contrib.sessions.middleware import SessionMiddleware
    from django.middleware.csrf import CsrfViewMiddleware, get_token

    def check_not_kept_if_used(use, path, wrap=SessionMiddleware):
        def using_view(request):
            use(request)
            return view(request)
        using_view.__qualname__ = path
        cached_view = wrap(cached_page(60)(using_view))
        check_kept(False, cached_view, lambda: get(path, headers={"cookie": "theme=dark"}))

    check_not_kept_if_used(lambda request: request.session.get("user"), "/session")
    check_not_kept_if_used(lambda request: request.COOKIES.get("theme"), "/cookies")
    check_not_kept_if_used(lambda request: "theme" in request.COOKIES, "/has-cookie")
    check_not_kept_if_used(lambda request: dict(request.COOKIES.items()), "/all-cookies")
    check_not_kept_if_used(get_token, "/csrf", CsrfViewMiddleware)
    check_not_kept_if_used(lambda request: len(request.COOKIES), "/cookie-count")
    same = SessionMiddleware(cached_page(60)(view))
    with_cookie = lambda: get("/same", headers={"cookie": "theme=dark"})
    check_kept(True, same, lambda: get("/same"))
    check_kept(False, same, with_cookie)
    check_kept(True, SessionMiddleware(cached_page(60, public=True)(view)), lambda: get("/all"))
    public = SessionMiddleware(cached_page(60, public=True)(view))
    check_kept(True, public, lambda: get("/public", headers={"cookie": "theme=dark"}))
    for use, number in (
        (lambda request: bool(request.COOKIES), 1), (lambda request: request.COOKIES.copy(), 2),
        (lambda request: list(request.COOKIES.keys()), 3), (lambda request: request.COOKIES | {}, 4),
        (lambda request: {**request.COOKIES}, 5), (lambda request: request.session.get("user"), 6),
    ):
        def using_view(request, use=use):
            use(request)
            return view(request)
        using_view.__qualname__ = f"using{number}"
        using = SessionMiddleware(cached_page(60, public=True)(using_view))
        check_kept(False, using, lambda: get(f"/using{number}", headers={"cookie": "theme=dark"}))

    def stating_view(request):
        response = view(request)
        response["Cache-Control"] = "public, max-age=60"
        return response
    check_kept(True, cached_page(60)(stating_view), with_cookie)
    check_kept(False, cached_page(60)(view), lambda: get("/key", headers={"x-api-key": "k"}))

    import zoneinfo
    from django.utils import timezone
    zoned = cached_page(60)(lambda request: HttpResponse(timezone.get_current_timezone_name()))
    for zone in ("Asia/Tokyo", "America/New_York"):
        with timezone.override(zoneinfo.ZoneInfo(zone)):
            assert zoned(get("/zone")).content.decode() == zone
    class NamedUser:
        is_authenticated = True
    def named(request, name):
        request.user = NamedUser()
        return cached_page(60)(lambda request: HttpResponse(name))(request)
    assert [named(get("/named"), name).content for name in ("alice", "bob")] == [b"alice", b"bob"]

    varied = cached_page(60, vary_on=["X-Plan"])(vary_on_headers("X-Plan")(view))
    for plan in ("free", "gold"):
        check_kept(True, varied, lambda: get("/v", headers={"x-plan": plan}))
    bodies = {varied(get("/v", headers={"x-plan": plan})).content for plan in ("free", "gold")}
    assert len(bodies) == 2

    def slow(request):
        time.sleep(0.2)
        return view(request)

    once, before = cached_page(60)(slow), len(calls)
    threads = [threading.Thread(target=lambda: once(get("/slow"))) for _ in range(20)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert len(calls) == before + 1, len(calls) - before

    for wrong in (lambda: cached_page(60, cache="other")(view)(get("/o")),):
        try:
            wrong()
        except TypeError as error:
            assert "other" in str(error)
        else:
            raise AssertionError
    async def later(request): ...
    from django.views import View
    class Later(View):
        async def get(self, request): ...
    for wrong in (lambda: cached_page(60)(later), lambda: cached_page(60)(Later.as_view()),
                  lambda: cached_page(60)(lambda request: later(request))(get("/later"))):
        try:
            wrong()
        except TypeError as error:
            assert "CacheASGI" in str(error)
        else:
            raise AssertionError

    echo = cached_page(60)(lambda request: HttpResponse(request.headers.get("X-Forwarded-Prefix", "none")))
    echo(get("/echo", headers={"x-forwarded-prefix": "evil"}))
    assert echo(get("/echo")).content == b"none"
    print("done")
"""


def test_a_view_is_kept_for_everyone_or_not_at_all(glasscache_server: Server) -> None:
    pytest.importorskip("django", reason="django is not installed")
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), glasscache_server.address]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip() == "done"
