"""`manage.py glasscache_report`: what a page of the site costs in its caches, by call and by part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.cache import caches
from django.core.management.base import BaseCommand, CommandError
from django.test import Client as SiteClient

from glasscache._report import Report, subtract_stats
from glasscache.contrib.django import GlassCache

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBE_KEY = "glasscache_report"
_PROBE_TTL_S = 60


class Command(BaseCommand):
    """Requests pages twice, and prints what the second request cost in each cache."""

    help = (
        "Request each URL twice in this process, and print what the second request cost in the "
        "caches; without a URL, what writing and reading one small value costs."
    )
    requires_system_checks = ()  # the command works in a site that has other faults, too

    def add_arguments(self, parser: Any) -> None:
        """Add the arguments."""
        parser.add_argument(
            "urls", nargs="*", metavar="URL", help="a path of the site, such as /articles/?page=2"
        )
        parser.add_argument("--cache", metavar="ALIAS", help="only this cache of CACHES")
        parser.add_argument("--json", action="store_true", help="print the counters as JSON")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Measure and print."""
        caches_by_alias = _named_caches(options["cache"])
        results = [_measure_url(url, caches_by_alias) for url in options["urls"]]
        results = results or [_measure_probe(caches_by_alias)]
        if options["json"]:
            self.stdout.write(json.dumps(results))
            return
        self.stdout.write("\n\n".join(map(_format, results)))


def _named_caches(wanted_alias: str | None) -> dict[str, GlassCache]:
    if wanted_alias is not None and wanted_alias not in settings.CACHES:
        raise CommandError(
            f"CACHES has no {wanted_alias!r}: write one of {', '.join(settings.CACHES)}"
        )
    aliases = settings.CACHES if wanted_alias is None else [wanted_alias]
    backends = {alias: caches[alias] for alias in aliases}
    found = {alias: cache for alias, cache in backends.items() if isinstance(cache, GlassCache)}
    if not found:
        raise CommandError(
            f"{', '.join(aliases)}: no cache with the backend glasscache.contrib.django.GlassCache"
        )
    return found


def _measure_url(url: str, caches_by_alias: Mapping[str, GlassCache]) -> dict[str, Any]:
    """Return the counters of the second request; the first fills the caches."""
    site = SiteClient(raise_request_exception=False)
    host = next((host for host in settings.ALLOWED_HOSTS if host != "*"), "localhost").lstrip(".")
    site.get(url, headers={"host": host})
    before = {alias: cache.stats() for alias, cache in caches_by_alias.items()}
    response = site.get(url, headers={"host": host})
    return {
        "request": url,
        "status": response.status_code,
        "caches": {
            alias: subtract_stats(cache.stats(), before[alias])
            for alias, cache in caches_by_alias.items()
        },
    }


def _measure_probe(caches_by_alias: Mapping[str, GlassCache]) -> dict[str, Any]:
    for cache in caches_by_alias.values():
        cache.set(PROBE_KEY, "a small value", _PROBE_TTL_S)
        cache.get(PROBE_KEY)
    counters = {alias: cache.stats() for alias, cache in caches_by_alias.items()}
    return {"request": None, "status": None, "caches": counters}


def _format(result: Mapping[str, Any]) -> str:
    if result["request"] is None:
        title = "A small value, written and read once; name a URL to see what a page costs."
    else:
        title = f"{result['request']}: status {result['status']}, the second request."
    parts = [title]
    parts += [f"{alias}: {Report(stats)}" for alias, stats in result["caches"].items()]
    return "\n\n".join(parts)
