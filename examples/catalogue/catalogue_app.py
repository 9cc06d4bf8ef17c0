"""The catalogue as an ASGI application: `uvicorn catalogue_app:create_app --factory`, set by the environment.

CATALOGUE_FILE: the database. CATALOGUE_CACHE: address of the cache server. CATALOGUE_STRATEGY: a strategy
file, if it runs one. CATALOGUE_LOG: the folder of a request log, if requests are recorded.
"""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

from catalogue import Catalogue, ancestors, key_of, parent_of
from glasscache import AsyncClient
from glasscache.middleware import RequestASGI

TTL_S = 24 * 3600


class Pages:
    """Renders the page of a topic: the topics above it, itself, and those below it, each from the cache."""

    def __init__(self, catalogue: Catalogue, client: AsyncClient) -> None:
        """Read topics from the cache, and those that it does not have from the catalogue."""
        self.catalogue, self.client = catalogue, client

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002 - ASGI
        """Respond to one request."""
        page = await self._page(path_of(scope))
        body = b"no such topic" if page is None else page.encode()
        status = 404 if page is None else 200
        headers = [(b"content-type", b"text/html"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _topic(self, path: str) -> dict[str, Any] | None:
        return await self.client.get_or_set(
            key_of(path), lambda: self.catalogue.topic(path), ttl=TTL_S, none_ttl=60
        )

    async def _page(self, path: str) -> str | None:
        topic = await self._topic(path)
        if topic is None:
            return None
        topics_above = [await self._topic(related_topic) for related_topic in ancestors(path)]
        topics_below = [await self._topic(related_topic) for related_topic in topic["below"]]
        breadcrumbs = " / ".join(
            html.escape(related_topic["title"]) for related_topic in topics_above if related_topic
        )
        cards = "".join(
            f"<li>{html.escape(related_topic['title'])}: {related_topic['stars'] or 0:.1f} stars"
            for related_topic in topics_below
            if related_topic
        )
        title, body = html.escape(topic["title"]), html.escape(topic["body"])
        return f"<p>{breadcrumbs}<h1>{title}</h1><p>{body}<ul>{cards}</ul>"


def path_of(scope: Any) -> str:
    """Return the path of the topic that a request is about."""
    return str(scope["path"]).removeprefix("/topic/")


def application(pages: Pages) -> Any:
    """Return the application; its requests run the client's strategy and are recorded, if it has either."""
    return RequestASGI(
        pages,
        pages.client,
        page=lambda scope: key_of(path_of(scope)),
        route=lambda _: "/topic/{path}",
    )


def pages_from_environment(environment: dict[str, str]) -> Pages:
    """Return the pages with a client that is set up from these settings."""
    client = AsyncClient(
        environment.get("CATALOGUE_CACHE", "127.0.0.1:11211"),
        timeout=5,
        strategy=environment.get("CATALOGUE_STRATEGY"),
        near_ttl=60,
    )
    if log := environment.get("CATALOGUE_LOG"):
        client.recorder(log, parent_of=parent_of)
    return Pages(Catalogue(Path(environment["CATALOGUE_FILE"])), client)


def create_app() -> Any:
    """Return the application, set up from the environment."""
    return application(pages_from_environment(dict(os.environ)))
