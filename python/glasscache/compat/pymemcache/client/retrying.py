"""`RetryingClient`: tries the calls of another client again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _tuple_of_exceptions(
    exceptions: Iterable[type[Exception]] | None, name: str
) -> tuple[type[Exception], ...]:
    if exceptions is None:
        return ()
    if not isinstance(exceptions, list | set | tuple):
        raise ValueError(  # noqa: TRY004 - as pymemcache
            f"{name} must be either None or a list/set/tuple of exceptions."
        )
    for error_type in cast("Iterable[Any]", exceptions):
        if not issubclass(error_type, Exception):
            raise ValueError(  # noqa: TRY004 - likewise
                "Exceptions can only be subclasses of Exception"
            )
    return tuple(exceptions)


class RetryingClient:
    """Another client whose calls are tried again when they raise."""

    def __init__(
        self,
        client: Any,
        attempts: int = 2,
        retry_delay: float = 0,
        retry_for: Iterable[type[Exception]] | None = None,
        do_not_retry_for: Iterable[type[Exception]] | None = None,
    ) -> None:
        """Try each call up to `attempts` times with `retry_delay` seconds between.

        Only exceptions of `retry_for` (all when it is empty) and not of `do_not_retry_for` are tried again.
        """
        if attempts < 1:
            raise ValueError(
                "`attempts` argument must be at least 1. Otherwise no attempts will be made."
            )
        self._client, self._attempts, self._retry_delay = client, attempts, retry_delay
        self._retry_for = _tuple_of_exceptions(retry_for, "retry_for")
        self._do_not_retry_for = _tuple_of_exceptions(do_not_retry_for, "do_not_retry_for")
        for error_type in self._do_not_retry_for:
            if error_type in self._retry_for:
                raise ValueError(
                    f"Exception class {error_type!r} was present in both `retry_for` and `do_not_retry_for`."
                )
        self._client_dir = dir(client)

    def _retry(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        for attempt in range(self._attempts):
            try:
                return call(*args, **kwargs)
            except Exception as error:
                is_last = attempt == self._attempts - 1
                is_retryable = not self._retry_for or isinstance(error, self._retry_for)
                if is_last or not is_retryable or isinstance(error, self._do_not_retry_for):
                    raise
                time.sleep(self._retry_delay)
        return None

    def __dir__(self) -> list[str]:
        """Return the client's names."""
        return self._client_dir

    def __getattr__(self, name: str) -> Any:
        """Return the client's attribute, a call being tried again."""
        attribute = getattr(self._client, name)
        if not callable(attribute):
            return attribute

        def retrying_call(*args: Any, **kwargs: Any) -> Any:
            return self._retry(attribute, *args, **kwargs)

        return retrying_call

    def __contains__(self, key: Any) -> bool:
        """Whether there is a value under key."""
        return bool(self._retry(self._client.__contains__, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Store a value."""
        self._retry(self._client.__setitem__, key, value)

    def __getitem__(self, key: Any) -> Any:
        """Return the value under key."""
        return self._retry(self._client.__getitem__, key)

    def __delitem__(self, key: Any) -> None:
        """Remove a key."""
        self._retry(self._client.__delitem__, key)
