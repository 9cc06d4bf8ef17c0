"""The reference page of a client's settings and its JSON schema, from the table."""

from __future__ import annotations

import typing
from typing import Any

from glasscache._client_settings import (
    ASYNC_CLIENT_SETTINGS,
    CLIENT_SETTINGS,
    KINDS,
    ClientSettings,
    Setting,
    annotation_of,
)

_FRONT_ENDS = (
    "Django takes them in `OPTIONS`, dogpile in `arguments`, cachelib and Flask-Caching as options, and the "
    "drop-in modules those that the original does not decide."
)
_REFUSALS = (
    "An unknown name, a value of another type and a setting without effect are refused. "
    "[The schema](client-settings.schema.json) has those that JSON can hold."
)


def _type_of(name: str) -> str:
    annotation = annotation_of(ClientSettings, name)
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(f'"{choice}"' for choice in typing.get_args(annotation))
    return (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", str(annotation))
    )


def _row(name: str, row: Setting) -> str:
    type_text = _type_of(name).replace("|", "\\|")
    needs = f"; needs `{row.needs}`" if row.needs else ""
    blocking = "" if name in ASYNC_CLIENT_SETTINGS else " (`Client` only)"
    return f"| `{name}` | `{type_text}` | `{row.default!r}` | {row.sentence}{needs}{blocking} | {row.since} |"


def reference_page() -> str:
    """Return the page in Markdown."""
    rows = "\n".join(_row(name, row) for name, row in CLIENT_SETTINGS.items())
    return f"""# Settings of the Python client

Generated from the table of the package by `make reference-pages`.

`Client` and `AsyncClient` take these as keywords after the servers. {_FRONT_ENDS} {_REFUSALS}

| setting | type | default | meaning | since |
|---|---|---|---|---|
{rows}
"""


def json_schema() -> dict[str, Any]:
    """Return the schema of those settings that a JSON document can hold."""
    properties: dict[str, Any] = {}
    for name, row in CLIENT_SETTINGS.items():
        if row.choices:
            of_type: dict[str, Any] = {"enum": list(row.choices)}
        elif row.kind:
            of_type = dict(KINDS[row.kind].schema)
        elif name in {"children_of", "password"}:
            continue
        elif name == "tls":
            of_type = {"type": "boolean"}
        elif name == "gutter":
            of_type = {"type": ["string", "array"], "items": {"type": "string"}}
        else:
            of_type = {"type": ["string", "null"] if row.default is None else "string"}
        default = row.default.decode() if isinstance(row.default, bytes) else row.default
        properties[name] = {**of_type, "default": default, "description": row.sentence}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of the glasscache client",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "dependentRequired": {
            name: [row.needs]
            for name, row in CLIENT_SETTINGS.items()
            if row.needs and name in properties
        },
    }
