"""The settings of an HTTP cache, which its middleware, purges and `explain` share."""

from __future__ import annotations

from dataclasses import dataclass

from glasscache.errors import BadSetting

__all__ = ["CacheSettings"]


@dataclass(frozen=True)
class CacheSettings:
    """What `CacheASGI`, `CacheWSGI`, `Purger` and `explain` of one site have in common, beside its rules.

    Args:
        namespace: stands before the keys of this cache.
        version: of the deployment; responses stored under another are not found.
        max_bytes: longest body that is stored.
        lease: seconds that the application has to reply before another request may fetch the same.
        wait: seconds that a request waits for another's fetch; None takes `lease`.
        early: refresh responses shortly before their end, by chance and by what they cost the last time; a
            number of seconds takes the place of the measured cost, False never does it.
        purge_token: allows `PURGE` requests that carry it as a bearer token; None refuses all.

    >>> CacheSettings(version="2026-07-14").namespace
    'web'

    """

    namespace: str = "web"
    version: str = ""
    max_bytes: int = 64 << 20
    lease: float = 10.0
    wait: float | None = None
    early: bool | float = True
    purge_token: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that would silently mean something else.

        Raises:
            BadSetting: a value is out of range; the message has its name and what to write.

        """
        if (
            not self.namespace
            or len(self.namespace) > _NAMESPACE_BYTES_MAX
            or not self.namespace.isascii()
        ):
            raise BadSetting(
                f"namespace={self.namespace!r}: write 1 to {_NAMESPACE_BYTES_MAX} ASCII characters"
            )
        if self.max_bytes < 0:
            raise BadSetting(f"max_bytes={self.max_bytes}: write 0 or more")
        if not self.lease > 0:
            raise BadSetting(f"lease={self.lease}: write seconds above 0")
        if self.wait is not None and self.wait < 0:
            raise BadSetting(f"wait={self.wait}: write 0 seconds or more, or None")
        if self.early < 0:
            raise BadSetting(f"early={self.early}: write True, False or seconds")
        if self.purge_token is not None and not self.purge_token:
            raise BadSetting('purge_token="": write a secret, or None to refuse PURGE')


_NAMESPACE_BYTES_MAX = 100
"""Keys are the namespace and 60 bytes at most, and clients may have a namespace of their own."""
