"""A page of forty fragments in Jinja2 and Django, one by one and by one request, with a relay that adds 1 ms.

Usage: fragments.py [--pages 50] [--delay-ms 1]
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import threading
import time
from typing import Any

from glasscache import Client, Server

FRAGMENT_COUNT = 40


class Relay:
    """Passes bytes between clients and a server, each way later by half a delay; counts the requests."""

    def __init__(self, address: str, delay_s: float) -> None:
        host, port = address.rsplit(":", 1)
        self._server_address, self._delay_s = (host, int(port)), delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.request_count = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self._server_address)
            for source, target, is_request in ((client, server, True), (server, client, False)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(
                    target=self._forward, args=(source, target, is_request), daemon=True
                ).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:
        while data := source.recv(1 << 20):
            self.request_count += is_request
            time.sleep(self._delay_s / 2)
            target.sendall(data)


def jinja_page(address: str) -> tuple[Any, Any]:
    from glasscache.contrib.jinja import FragmentExtension, prefetch
    from jinja2 import Environment

    client = Client(address, timeout=5)
    environment = Environment(extensions=[FragmentExtension], autoescape=True)
    environment.glasscache = client
    row_template = "{% cache 'jinja', 300, n %}<li>{{ n }}</li>{% endcache %}"
    template_text = "{% for n in range(40) %}" + row_template + "{% endfor %}"
    template = environment.from_string(template_text)
    return template.render, lambda: prefetch(client, "page")


def django_page(address: str) -> tuple[Any, Any]:
    import django as framework
    from django.conf import settings

    settings.configure(
        CACHES={"default": {"BACKEND": "glasscache.contrib.django.GlassCache", "LOCATION": address,
                            "OPTIONS": {"timeout": 5}}},
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates",
                    "OPTIONS": {"libraries": {"fragments": "glasscache.contrib.django_fragments"}}}],
    )  # fmt: skip
    framework.setup()
    from django.template import engines
    from glasscache.contrib.django_fragments import prefetch_fragments

    row_template = "{% glasscache 300 'row' n %}<li>{{ n }}</li>{% endglasscache %}"
    template_text = "{% load fragments %}{% for n in rows %}" + row_template + "{% endfor %}"
    template = engines["django"].from_string(template_text)
    return lambda: template.render({"rows": range(FRAGMENT_COUNT)}), lambda: prefetch_fragments(
        "page"
    )


def measure(page_count: int, render: Any, relay: Relay) -> tuple[float, float]:
    """Return the median milliseconds of a page, and its requests to the cache."""
    durations_s, requests_before = [], relay.request_count
    for _ in range(page_count):
        started_at = time.perf_counter()
        render()
        durations_s.append(time.perf_counter() - started_at)
    return statistics.median(durations_s) * 1e3, (
        relay.request_count - requests_before
    ) / page_count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--delay-ms", type=float, default=1)
    options = parser.parse_args()
    is_met = True
    with Server() as server:
        for name, make_page in (("Jinja2", jinja_page), ("Django", django_page)):
            relay = Relay(server.address, options.delay_ms / 1e3)
            render, prefetch = make_page(relay.address)

            def render_prefetched(render: Any = render, prefetch: Any = prefetch) -> None:
                with prefetch():
                    render()

            render_prefetched()
            single_ms, single_requests = measure(options.pages, render, relay)
            prefetched_ms, prefetched_requests = measure(options.pages, render_prefetched, relay)
            print(f"{name}: {FRAGMENT_COUNT} fragments one by one {single_ms:.1f} ms "
                  f"in {single_requests:.0f} requests, "
                  f"prefetched {prefetched_ms:.1f} ms in {prefetched_requests:.0f}: "
                  f"{prefetched_ms / single_ms:.2f} x")  # fmt: skip
            is_met &= prefetched_requests == 1 and prefetched_ms <= 0.1 * single_ms
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
