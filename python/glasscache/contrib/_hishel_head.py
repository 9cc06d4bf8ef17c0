"""The head of a hishel entry: the record that makes a stored response visible."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from hishel import Headers, Request, Response

__all__ = ["GRACE_S", "EntryHead", "headers_as_lists", "request_and_response_of"]

GRACE_S: Final = 180
"""So long an entry is kept that is still being written, or has expired while it is being read."""


@dataclass
class EntryHead:
    """What is stored under an entry's id: request, response without its body, and limits of its life."""

    key: str
    request: dict[str, Any]
    response: dict[str, Any]
    is_complete: bool = False
    length: int = 0
    ttl_ends_at: float | None = None
    tti_s: float | None = None
    used_at: float = 0.0

    def encode(self) -> bytes:
        return json.dumps(self.__dict__).encode()

    @classmethod
    def decode(cls, data: Any) -> EntryHead | None:
        try:
            head = cls(**json.loads(data))
            request_and_response_of(head.request, head.response)
            head.ttl(head.used_at + head.length)  # limits that are not numbers raise
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        return head

    def expires_at(self) -> float | None:
        end_times = [self.ttl_ends_at] if self.ttl_ends_at is not None else []
        if self.tti_s is not None:
            end_times.append(self.used_at + self.tti_s)
        return min(end_times, default=None)

    def ttl(self, now: float) -> int | None:
        """Return the seconds that the store keeps it; None for ever."""
        expires_at = self.expires_at()
        return None if expires_at is None else max(1, int(expires_at - now) + GRACE_S)


def headers_as_lists(headers: Headers) -> dict[str, list[str]]:
    """Return headers as JSON holds them."""
    return {name: headers.get_list(name) or [] for name in headers}


def _headers_of(header_lists: Any) -> Headers:
    return Headers(
        {str(name): [str(value) for value in values] for name, values in header_lists.items()}
    )


def request_and_response_of(
    request: dict[str, Any], response: dict[str, Any]
) -> tuple[Request, Response]:
    """Return the request and the response, without its body, of a head."""
    return (
        Request(request["method"], request["url"], _headers_of(request["headers"])),
        Response(response["status"], _headers_of(response["headers"])),
    )
