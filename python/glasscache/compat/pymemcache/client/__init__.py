"""The clients, where older programs import them from."""

from glasscache.compat.pymemcache.client.base import Client, PooledClient
from glasscache.compat.pymemcache.client.hash import HashClient
from glasscache.compat.pymemcache.client.retrying import RetryingClient

__all__ = ["Client", "HashClient", "PooledClient", "RetryingClient"]
