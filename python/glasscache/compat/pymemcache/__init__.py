"""pymemcache's modules over this package's client: `from glasscache.compat import pymemcache`.

`Client`, `PooledClient`, `HashClient` and `RetryingClient` take pymemcache's arguments, place keys by
its rendezvous hash and run its serdes. What differs on purpose: a call waits for its reply unless
that call says `noreply=True`; a value over the server's limit always raises; every call has a
finite timeout; all of them may be shared by threads.
"""

from glasscache.compat.pymemcache.client.base import Client, PooledClient
from glasscache.compat.pymemcache.client.hash import HashClient
from glasscache.compat.pymemcache.client.retrying import RetryingClient
from glasscache.compat.pymemcache.exceptions import (
    MemcacheClientError,
    MemcacheError,
    MemcacheIllegalInputError,
    MemcacheServerError,
    MemcacheUnexpectedCloseError,
    MemcacheUnknownCommandError,
    MemcacheUnknownError,
)

__all__ = [
    "Client",
    "HashClient",
    "MemcacheClientError",
    "MemcacheError",
    "MemcacheIllegalInputError",
    "MemcacheServerError",
    "MemcacheUnexpectedCloseError",
    "MemcacheUnknownCommandError",
    "MemcacheUnknownError",
    "PooledClient",
    "RetryingClient",
]
__version__ = "4.0.0"
"""The version whose interface this is."""
