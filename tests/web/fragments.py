"""A page of forty fragments in Jinja2 and Django, one by one and by one request, with a relay that adds 1 ms.

Usage: fragments.py [--pages 50] [--delay-ms 1]
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import time
from typing import Any

from glasscache import Client, Server

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "live"))

from scripted_server import Relay

FRAGMENT_COUNT = 40


class DelayingRelay(Relay):
    """Passes bytes between clients and a server, each way later by half a delay; counts the requests."""

    def __init__(self, server_address: str, delay_s: float) -> None:
        self.delay_s, self.request_count = delay_s, 0
        super().__init__(server_address, self._delay)

    def _delay(self, chunk: bytes, is_request: bool) -> bytes:
        self.request_count += is_request
        time.sleep(self.delay_s / 2)
        return chunk


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


def measure(page_count: int, render: Any, relay: DelayingRelay) -> tuple[float, float]:
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
            relay = DelayingRelay(server.address, options.delay_ms / 1e3)
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
