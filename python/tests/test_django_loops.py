"""Django's async views under WSGI, which run each request in an event loop of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from glasscache import Server

REQUESTS = int(os.environ.get("GLASSCACHE_TEST_LOOPS", "60"))
"""10,000 in a long run."""

PROGRAM = """
import gc, io, os, sys
import django
from django.conf import settings
address, requests = sys.argv[1], int(sys.argv[2])
settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"],
    CACHES={"default": {
        "BACKEND": "glasscache.contrib.django.GlassCache", "LOCATION": address, "OPTIONS": {"timeout": 20},
    }},
)
django.setup()
from django.core.cache import cache
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.urls import path
from glasscache import Client

async def view(request, number):
    await cache.aset(f"n{number % 7}", number)
    kept = await cache.aget_many([f"n{number % 7}", "none"])
    return HttpResponse(str(kept[f"n{number % 7}"]))

urlpatterns = [path("<int:number>", view)]
application = WSGIHandler()

def request(number):
    environ = {
        "REQUEST_METHOD": "GET", "PATH_INFO": f"/{number}", "SERVER_NAME": "localhost", "SERVER_PORT": "80",
        "wsgi.input": io.BytesIO(), "wsgi.url_scheme": "http",
    }
    response = application(environ, lambda *head: None)
    assert b"".join(response) == str(number).encode()
    response.close()

def held():
    gc.collect()
    with Client(address) as client:
        (stats,) = client.server_stats().values()
    return len(os.listdir("/proc/self/fd")), int(stats["curr_connections"])

for number in range(10):
    request(number)
print(*held())
for number in range(requests):
    request(number)
print(*held())
"""


def test_async_views_under_wsgi_leave_no_connection_behind(server: Server) -> None:
    pytest.importorskip("django")
    command = [sys.executable, "-c", PROGRAM, server.address, str(REQUESTS)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    assert ended.returncode == 0, ended.stderr
    after_ten, after_all = (list(map(int, line.split())) for line in ended.stdout.splitlines())
    assert after_all[0] <= after_ten[0] + 2
    assert after_all[1] <= after_ten[1] + 3  # of tests beside this one
