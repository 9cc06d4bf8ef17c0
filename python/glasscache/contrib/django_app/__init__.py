"""The app `glasscache.contrib.django_app`: the check of `CACHES` and `manage.py glasscache_report`."""
