"""Fragments of Django templates, all of a page read by one request.

    TEMPLATES = [{..., "OPTIONS": {"libraries": {"fragments": "glasscache.contrib.django_fragments"}}}]

    {% load fragments %}{% glasscache 300 "sidebar" user.language %} ... {% endglasscache %}

    with prefetch_fragments("product"):
        return render(request, "product.html")

The fragments are in the cache `template_fragments`, or `default` without one, as those of Django's own tag
`cache`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.cache import InvalidCacheBackendError, caches
from django.template import Library, Node, TemplateSyntaxError

from glasscache.contrib._fragments import fragment_key, prefetch, read_fragment

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["prefetch_fragments", "register"]

register = Library()

_ARGUMENTS_MIN = 3


def _store() -> Any:
    try:
        return caches["template_fragments"]
    except InvalidCacheBackendError:
        return caches["default"]


def prefetch_fragments(page: str) -> AbstractContextManager[None]:
    """Return a block that reads the fragments which a page used the last time, by one request.

    Args:
        page: names the page and what its set of fragments depends on, such as "product:de".

    """
    return prefetch(_store(), page)


class _Fragment(Node):
    def __init__(self, nodes: Any, ttl: Any, name: Any, vary_on: list[Any]) -> None:
        self.nodelist, self._ttl, self._name, self._vary_on = nodes, ttl, name, vary_on

    def render(self, context: Any) -> str:
        """Return the fragment, stored or rendered."""
        ttl: Any = self._ttl.resolve(context)
        if ttl is not None and not isinstance(ttl, int | float):
            raise TemplateSyntaxError(f"glasscache: {ttl!r} is not a number of seconds")
        vary_on = [argument.resolve(context) for argument in self._vary_on]
        key = fragment_key(str(self._name.resolve(context)), *vary_on)
        return read_fragment(_store(), key, ttl, lambda: str(self.nodelist.render(context)))


@register.tag("glasscache")
def glasscache_tag(parser: Any, token: Any) -> Node:
    """Compile `{% glasscache seconds name [vary_on ...] %}` up to `{% endglasscache %}`."""
    nodes = parser.parse(("endglasscache",))
    parser.delete_first_token()
    tag_arguments = token.split_contents()
    if len(tag_arguments) < _ARGUMENTS_MIN:
        raise TemplateSyntaxError(
            "glasscache takes seconds and a name: {% glasscache 300 sidebar %}"
        )
    ttl, name, *vary_on = (parser.compile_filter(word) for word in tag_arguments[1:])
    return _Fragment(nodes, ttl, name, vary_on)
