"""Fragments of Jinja2 templates kept in the cache.

    environment = Environment(extensions=[FragmentExtension])
    environment.glasscache = client

    {% cache "sidebar", 300, user.language %} ... {% endcache %}

The arguments are a name, seconds (none for ever) and what the fragment varies on. `prefetch` reads all
fragments of a page by one request before it is rendered; what a page reads it learns from its last
rendering. An environment with `enable_async=True` refuses the tag when it reads the template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from jinja2 import nodes
    from jinja2.ext import Extension
except ImportError as error:  # pragma: no cover
    raise ImportError("glasscache.contrib.jinja needs the package jinja2") from error

from glasscache.contrib._fragments import fragment_key, prefetch, read_fragment

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FragmentExtension", "fragment_key", "prefetch"]


class FragmentExtension(Extension):
    """The tag `cache`; the environment's attribute `glasscache` is the `Client`."""

    tags = {"cache"}  # noqa: RUF012 - as Jinja2 declares it

    def __init__(self, environment: Any) -> None:
        """Add the tag to an environment."""
        super().__init__(environment)
        environment.extend(glasscache=None)

    def parse(self, parser: Any) -> nodes.Node:
        """Return the call block of a tag."""
        line_number = next(parser.stream).lineno
        if self.environment.is_async:
            parser.fail(
                "the tag cache cannot wait for what it renders under enable_async=True: read the template "
                "by an Environment without it",
                line_number,
            )
        arguments = [parser.parse_expression()]
        while parser.stream.skip_if("comma"):
            arguments.append(parser.parse_expression())
        if len(arguments) == 1:
            arguments.append(nodes.Const(None))
        body = parser.parse_statements(("name:endcache",), drop_needle=True)
        call_node = self.call_method("_fragment", arguments)
        return nodes.CallBlock(call_node, [], [], body).set_lineno(line_number)

    def _fragment(
        self, name: str, ttl: float | None, *vary_on: Any, caller: Callable[[], str]
    ) -> str:
        client: Any = getattr(self.environment, "glasscache", None)
        if client is None:
            return caller()
        return read_fragment(client, fragment_key(name, *vary_on), ttl, lambda: str(caller()))
