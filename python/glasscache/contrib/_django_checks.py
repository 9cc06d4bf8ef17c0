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
SESSION_ERROR_ID = "glasscache.E002"
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


def _session_messages(alias: str, cache_settings: CacheSettings) -> list[checks.CheckMessage]:
    """Return an error where one cache has a strategy and the sessions.

    The processes keep no session (`session_keys`), so that such a site runs as without a strategy. But what
    else it reads of a visitor, changes and writes back in this cache, nobody can know.
    """
    from django.conf import settings  # noqa: PLC0415 - not configured where only the module is imported

    has_strategy = cache_settings.client_options.get("strategy") is not None
    if not has_strategy or alias != settings.SESSION_CACHE_ALIAS or session_prefix() is None:
        return []
    return [
        checks.Error(
            f'CACHES["{alias}"] has a strategy and the sessions of {settings.SESSION_ENGINE}',
            hint='Write SESSION_CACHE_ALIAS = "sessions", and CACHES["sessions"] with the same LOCATION '
            'and no "strategy"; or SILENCED_SYSTEM_CHECKS = ["glasscache.E002"]: sessions are then read '
            "from their server each time.",
            id=SESSION_ERROR_ID,
        )
    ]


def session_prefix() -> str | None:
    """Return what the keys of the site's sessions have after their version; None if a cache has none."""
    from django.conf import settings  # noqa: PLC0415 - as above
    from django.utils.module_loading import import_string  # noqa: PLC0415 - likewise

    try:
        session_store = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
    except Exception:  # noqa: BLE001 - an engine of the site's; Django itself reports it with the first session
        return None
    prefix = getattr(session_store, "cache_key_prefix", None)
    return prefix if isinstance(prefix, str) and prefix else None


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
                messages += _session_messages(alias, cache_settings)
        return messages


def raise_if_too_late_to_check(
    location: Any, options: Mapping[str, Any], cache_settings: CacheSettings
) -> None:
    """Raise or warn of what is wrong with settings where this run of the checks cannot report it."""
    if not _is_imported_by_check_run or not _is_in_check_run():
        return
    for sentence in cache_settings.advice:
        warnings.warn(f"({LIKE_WARNING_ID}) {sentence}", stacklevel=2)
    sentences = [f"?: ({OPTION_ERROR_ID}) {sentence}" for sentence in cache_settings.refusals]
    sentences += [
        f"?: ({message.id}) {message.msg}\n\tHINT: {message.hint}"
        for message in _session_messages_of(location, options, cache_settings)
    ]
    if not sentences:
        return
    from django.core.management.base import SystemCheckError  # noqa: PLC0415 - for a run of the checks

    text = "\n".join(sentences)
    raise SystemCheckError(f"System check identified some issues:\n\nERRORS:\n{text}\n")


def _session_messages_of(
    location: Any, options: Mapping[str, Any], cache_settings: CacheSettings
) -> list[checks.CheckMessage]:
    """Return what `_session_messages` does of the cache with these settings, unless it is silenced."""
    from django.conf import settings  # noqa: PLC0415 - as above

    alias = settings.SESSION_CACHE_ALIAS
    config = settings.CACHES.get(alias, {})
    is_of_alias = config.get("LOCATION", "") == location and config.get("OPTIONS") == options
    messages = _session_messages(alias, cache_settings) if is_of_alias else []
    return [message for message in messages if not message.is_silenced()]
