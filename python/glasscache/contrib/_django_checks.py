"""The system check of `CACHES` (tag `caches`): each setting that cannot be honoured, before a request.

Django has no list of checks that a cache backend could join: a backend's module is imported when its cache is
first used. Django's own check of caches uses them all, and so may be what imports this module. The run that
is then under way has its checks together and does not run this one, so a backend that is made in it raises
what this check would have reported, as the error with which such a run ends, or warns of it.
"""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any

from django.core import checks
from django.core.checks.registry import CheckRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from glasscache.contrib._django_settings import CacheSettings

OPTION_ERROR_ID = "glasscache.E001"
LIKE_WARNING_ID = "glasscache.W001"


def _is_in_check_run() -> bool:
    """Return whether a run of Django's checks imports this module."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is CheckRegistry.run_checks.__code__:
            return True
        frame = frame.f_back
    return False


_is_imported_by_check_run = _is_in_check_run()


def messages_of(alias: str, cache_settings: CacheSettings) -> list[checks.CheckMessage]:
    """Return what the check reports of one cache."""
    cache_name = f'CACHES["{alias}"]'
    errors = [
        checks.Error(f"{cache_name}: {sentence}", id=OPTION_ERROR_ID)
        for sentence in cache_settings.refusals
    ]
    warnings = [
        checks.Warning(f"{cache_name}: {sentence}", id=LIKE_WARNING_ID)
        for sentence in cache_settings.advice
    ]
    return [*errors, *warnings]


def register_check(
    backend: type[Any], translate_settings: Callable[[Any, Mapping[str, Any] | None], CacheSettings]
) -> None:
    """Have Django check the settings of all caches of a backend."""
    from django.conf import settings  # noqa: PLC0415 - not configured where only the module is imported
    from django.utils.module_loading import import_string  # noqa: PLC0415 - likewise

    @checks.register(checks.Tags.caches)
    def check_caches(app_configs: Any, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
        """Report each setting that this client cannot honour."""
        messages: list[checks.CheckMessage] = []
        for alias, config in settings.CACHES.items():
            backend_class = import_string(config["BACKEND"])
            if isinstance(backend_class, type) and issubclass(backend_class, backend):
                cache_settings = translate_settings(
                    config.get("LOCATION", ""), config.get("OPTIONS")
                )
                messages += messages_of(alias, cache_settings)
        return messages


def raise_if_too_late_to_check(cache_settings: CacheSettings) -> None:
    """Raise or warn of what is wrong with settings where this run of the checks cannot report it."""
    if not _is_imported_by_check_run or not _is_in_check_run():
        return
    for sentence in cache_settings.advice:
        warnings.warn(f"({LIKE_WARNING_ID}) {sentence}", stacklevel=2)
    if not cache_settings.refusals:
        return
    from django.core.management.base import SystemCheckError  # noqa: PLC0415 - for a run of the checks

    sentences = "\n".join(
        f"?: ({OPTION_ERROR_ID}) {sentence}" for sentence in cache_settings.refusals
    )
    raise SystemCheckError(f"System check identified some issues:\n\nERRORS:\n{sentences}\n")
