"""A pytest plugin: `pylibmc` and its C module `_pylibmc` are our drop-in module."""

import functools
import importlib.util
import os
import sys
from pathlib import Path

from glasscache.compat import pylibmc
from glasscache.compat.pylibmc import autoconf

sys.modules.update(pylibmc=pylibmc, _pylibmc=pylibmc)
sys.modules.update({"pylibmc.client": pylibmc, "pylibmc.autoconf": autoconf})

# The project's own helper for tests, from its distribution.
spec = importlib.util.spec_from_file_location("pylibmc.test", Path("src/pylibmc/test.py"))
sys.modules["pylibmc.test"] = helper = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helper)


def pytest_collection_modifyitems(items: list) -> None:
    """Point the tests' class attributes at the server of this run."""
    import tests

    tests.PylibmcTestCase.memcached_host = os.environ["MEMCACHED_HOST"]
    tests.PylibmcTestCase.memcached_port = os.environ["MEMCACHED_PORT"]
    server_address = f"{os.environ['MEMCACHED_HOST']}:{os.environ['MEMCACHED_PORT']}"
    autoconf.elasticache = functools.partial(autoconf.elasticache, address=server_address)
