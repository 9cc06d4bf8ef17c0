"""The dogpile backend; dogpile's own suites are those of `make dogpile-tests`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("dogpile.cache", reason="dogpile.cache is not installed")

from dogpile.cache import make_region, register_backend
from glasscache import BadSetting, Client

if TYPE_CHECKING:
    from glasscache import Server

register_backend("glasscache", "glasscache.contrib.dogpile", "GlassCacheBackend")


@pytest.mark.parametrize("is_list", [False, True])
def test_the_arguments_of_dogpiles_own_backends_are_accepted(
    glasscache_server: Server, is_list: bool
) -> None:
    address = glasscache_server.address
    arguments = {
        "url": [address] if is_list else address,
        "memcached_expire_time": 60,
        "timeout": 5,
        "distributed_lock": True,
    }
    region = make_region().configure("glasscache", arguments=arguments)
    region.set("by-url", "value")
    with Client(address, timeout=5) as client:
        item = client.get_with_meta("by-url")
        assert item is not None
        assert item.ttl is not None
        assert 50 < item.ttl <= 60
    configuration = {
        "cache.backend": "glasscache",
        "cache.arguments.url": address,
        "cache.arguments.memcached_expire_time": "60",
        "cache.arguments.timeout": "5",
    }
    configured_region = make_region().configure_from_config(configuration, "cache.")
    assert configured_region.get("by-url") == "value"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"urls": "a:1"}, "'urls' is not among client, ttl,.* url,.* servers,"),
        ({"url": "a:1", "dead_retry": 30}, "'dead_retry' is not among"),
        ({"url": "a:1", "servers": "b:1"}, "'servers' is given twice"),
        ({"url": "a:1", "ttl": 1, "memcached_expire_time": 2}, "'ttl' is given twice"),
        ({"client": Client("127.0.0.1:1"), "url": "b:1"}, "servers are settings of a new client"),
    ],
)
def test_an_argument_that_would_be_ignored_is_refused_by_name(
    arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(BadSetting, match=message):
        make_region().configure("glasscache", arguments=arguments)
