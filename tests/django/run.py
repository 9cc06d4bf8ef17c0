"""Runs Django's own cache, middleware and session tests on `GlassCache`: `make django-tests`.

The tests are those of Django's source distribution. The memcached ones get a class for our backend,
the middleware ones have their in-memory backend replaced by ours in a copy of the file, the session
ones take it from the settings. `async_cache_methods.py` beside this file tries every `a*` method and counts
threads.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from servers import memcached_servers  # noqa: E402
from sources import source_distribution  # noqa: E402

BACKEND = "glasscache.contrib.django.GlassCache"

TEST_SETTINGS = """
from test_sqlite import *  # noqa: F403
CACHES = {{"default": {{"BACKEND": "{backend}", "LOCATION": "{server}", "OPTIONS": {{"timeout": 5}}}}}}
"""

MEMCACHED_TESTS = """

GlassCache_params = {{"BACKEND": "{backend}", "LOCATION": "{server}", "OPTIONS": {{"timeout": 5}}}}


@override_settings(CACHES=caches_setting_for_tests(base=GlassCache_params, exclude=memcached_excluded_caches))
class GlassCacheTests(BaseMemcachedTests, TestCase):
    base_params = GlassCache_params
    # Connections serve the next request, whichever thread it comes in.
    should_disconnect_on_close = False
"""

TEST_CLASSES = {
    "memcached": ["cache.tests.GlassCacheTests"],
    "middleware": [
        f"cache.tests.{name}"
        for name in (
            "CacheUtils", "PrefixedCacheUtils", "CacheHEADTest", "CacheI18nTest",
            "PrefixedCacheI18nTest", "CacheMiddlewareTest", "TestWithTemplateResponse",
            "TestMakeTemplateFragmentKey", "CacheHandlerTest",
        )
    ],
    "sessions": ["sessions_tests"],
    "templates": ["template_tests.syntax_tests.test_cache"],
}  # fmt: skip


def copy_tests_with_our_backend(django_source: Path, work_folder: Path, server: str) -> Path:
    """Copies the tests of Django and replaces the backend by ours."""
    tests_folder = work_folder / "tests"
    shutil.copytree(django_source / "tests", tests_folder, symlinks=True)
    (tests_folder / "glass_settings.py").write_text(
        TEST_SETTINGS.format(backend=BACKEND, server=server)
    )
    cache_tests = tests_folder / "cache" / "tests.py"
    cache_tests_text = cache_tests.read_text()
    middleware_start = cache_tests_text.index("class CacheUtils(")
    unchanged, middleware_tests = (
        cache_tests_text[:middleware_start],
        cache_tests_text[middleware_start:],
    )
    # Each in-memory cache of the middleware tests becomes ours, its LOCATION a prefix, so that they
    # stay apart.
    middleware_tests = middleware_tests.replace(
        '"django.core.cache.backends.locmem.LocMemCache"', f'"{BACKEND}"'
    )
    middleware_tests = re.sub(
        r'("BACKEND": "glasscache[^"]*",)(\s*)"LOCATION": "([^"]*)"',
        rf'\1\2"LOCATION": "{server}", "KEY_PREFIX": "\3"',
        middleware_tests,
    )
    middleware_tests = re.sub(
        r'("BACKEND": "glasscache[^"]*",)(?!\s*"LOCATION")',
        rf'\1 "LOCATION": "{server}",',
        middleware_tests,
    )
    cache_tests.write_text(
        unchanged + middleware_tests + MEMCACHED_TESTS.format(backend=BACKEND, server=server)
    )
    return tests_folder


def run_tests(label: str, command: list[str], working_directory: Path, python_path: str) -> bool:
    environment = {**os.environ, "PYTHONPATH": python_path, "PYTHONWARNINGS": "ignore"}
    completed = subprocess.run(
        command, cwd=working_directory, env=environment, capture_output=True, text=True, check=False
    )
    output = completed.stdout + completed.stderr
    count_and_time = re.search(r"Ran (\d+) tests? in ([\d.]+)s", output)
    conclusion = output.strip().splitlines()[-1] if output.strip() else ""
    for line in output.splitlines():
        if line.startswith(("FAILED", "OK")):
            conclusion = line
    print(
        f"{label:12} {count_and_time.group(0) if count_and_time else 'did not run':30} {conclusion}",
        flush=True,
    )
    if completed.returncode:
        print(output[-6000:])
    return completed.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--django", default="5.2.*", help="version of Django")
    parser.add_argument(
        "--memcached", default=shutil.which("memcached"), help="the server's binary"
    )
    parser.add_argument("--only", choices=TEST_CLASSES)
    options = parser.parse_args()
    django_source = source_distribution(f"django=={options.django}")
    print(f"{django_source.name}, Python {sys.version.split()[0]}, {options.memcached}", flush=True)
    python_path = os.pathsep.join([str(django_source), os.environ.get("PYTHONPATH", "")])
    has_passed = True
    with (
        memcached_servers(1, options.memcached) as [server],
        tempfile.TemporaryDirectory() as work_folder,
    ):
        tests_folder = copy_tests_with_our_backend(django_source, Path(work_folder), server)
        for label, classes in TEST_CLASSES.items():
            if options.only in (None, label):
                command = [
                    sys.executable,
                    "runtests.py",
                    "--settings=glass_settings",
                    "--parallel=1",
                    *classes,
                ]
                has_passed &= run_tests(label, command, tests_folder, python_path)
        if options.only is None:
            has_passed &= run_tests(
                "async",
                [sys.executable, str(HERE / "async_cache_methods.py"), server],
                tests_folder,
                python_path,
            )
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(main())
