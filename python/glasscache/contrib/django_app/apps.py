"""The app for INSTALLED_APPS."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class GlassCacheConfig(AppConfig):
    """Checks the settings of all caches in every run of `manage.py check`."""

    name = "glasscache.contrib.django_app"
    label = "glasscache"
    verbose_name = "glasscache"

    def ready(self) -> None:
        """Register the check: the module does it when it is imported."""
        import_module("glasscache.contrib.django")
