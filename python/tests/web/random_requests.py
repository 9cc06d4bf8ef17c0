"""Random rules of the guides' vocabulary, and random requests in every spelling that servers let through."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_to_bytes

from glasscache import BadSetting
from glasscache.web import Rules

if TYPE_CHECKING:
    import random

GUIDES = Path(__file__).parents[3] / "docs" / "guides"
GUIDE_TABLES = [
    table
    for name in ("http-cache.md", "layers/rules.md")
    for table in re.findall(r"```toml\n(.*?)```", (GUIDES / name).read_text("utf-8"), re.DOTALL)
]
BYPASSED_PATH, BYPASSED_HOST, BYPASSED_COOKIE = "/admin/", "intra.example", "sessionid"
BYPASSES = """
[[rule]]
name = "administration"
when = { path = "/admin/**" }
then = { bypass = true }
[[rule]]
name = "inside"
when = { host = "intra.example" }
then = { bypass = true }
[[rule]]
name = "logged in"
when = { cookie = { sessionid = true } }
then = { bypass = true }
"""
CONDITIONS = (
    "", "", 'path = "/**"', 'path = "/shop/**"', 'path_regex = "/shop/([a-z]+)/?"', 'host = "shop.example"',
    'cookie = { lang = "^de$" }', "cookie = { theme = true }", "cookie = { theme = false }",
    'header = { x-plan = "gold" }', 'header = { user-agent = "Mobile" }', "header = { x-plan = false }",
    'method = "GET"', 'status = "4xx"', 'content_type = "text/*"',
)  # fmt: skip
SETTINGS = (
    "ttl = 60", "ttl = { 200 = 60, 404 = 5 }", "grace = 30", "keep = 60", 'tags = ["shop"]',
    'vary_on = ["language"]', 'vary_on = ["device", "cookie:lang"]', 'vary_on = ["header:x-plan"]',
    'vary_on = ["cookie:theme"]', 'pass_cookies = ["theme"]', "pass_cookies = []", "strip_cookies = true",
    'pass_cookies = ["lang"]\nvary_on = ["cookie:lang"]', "compress = true", "no_store = true",
    'canonicalise = { host = "www.shop.example" }', 'canonicalise = { trailing_slash = "strip" }',
    'canonicalise = { query_sort = true, query_drop = ["utm_*"] }', "ignore_request_directives = true",
    'canonicalise = { trailing_slash = "add", lower_path = true }', 'tag_field = "Cache-Tag"',
    'canonicalise = { query_keep = ["q"] }',
)  # fmt: skip


MOUNTS = (*[""] * 8, "/shop", "/a b")
SERVERS = [("shop.example", 80), ("10.0.0.1", 80)]


def random_rules(rng: random.Random, prelude: str = "") -> Rules:
    """Return a table of the guides, or rules of their vocabulary, behind `prelude`."""
    while True:
        if rng.random() < 0.2:
            text = prelude + rng.choice(GUIDE_TABLES)
        else:
            text = prelude + "".join(
                _random_rule(rng, number) for number in range(rng.randint(1, 4))
            )
        try:
            return Rules.from_text(text)
        except BadSetting:
            continue


def _random_rule(rng: random.Random, number: int) -> str:
    settings = "\n".join(rng.sample(SETTINGS, rng.randint(1, 3)))
    return (
        f'[[rule]]\nname = "random {number}"\nwhen = {{ {rng.choice(CONDITIONS)} }}\n'
        f"[rule.then]\n{settings}\n"
    )


def respell(rng: random.Random, path: str) -> bytes:
    """Return a path in another spelling that servers pass on."""
    spelled = ""
    for character in path:
        match rng.randrange(24):
            case 0:
                spelled += f"%{ord(character):02x}"
            case 1:
                spelled += f"%{ord(character):02X}"
            case 2 if character == "/":
                spelled += rng.choice(["//", "/./", "/x/../", "%2F", "\\", "/%2e/", "%5c"])
            case 3:
                spelled += character + rng.choice(["", "", "%00", "%0a", ";v=1", "%25", "%", "%20"])
            case _:
                spelled += character
    return (spelled + rng.choice(["", "", "/"])).encode()


def random_head(rng: random.Random) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]]:
    """Return path, query and fields of a GET."""
    path = respell(
        rng,
        rng.choice(["/", "/shop/lamps", "/shop/Lamps", "/admin/users", "/a b/c", "/caf\u00e9"[:4]]),
    )
    query = "&".join(
        rng.choice(["q=1", "q=2", "utm_x=1", "a=b", "%71=1", "", "utm_x"])
        for _ in range(rng.randrange(3))
    )
    fields = [(b"host", _random_host(rng))] if rng.random() < 0.97 else []
    for name, values in _FIELDS.items():
        while rng.random() < 0.2:
            fields.append((name, rng.choice(values)))
    while rng.random() < 0.5:
        fields.append((b"cookie", _random_cookies(rng)))
    return path, query.encode(), fields


_FIELDS = {
    b"x-plan": [b"gold", b"silver", b"gold, silver", b"gold ", b"Gold", b""],
    b"accept-language": [
        b"de",
        b"de-AT, en;q=0.5",
        b"DE",
        b"fr;q=0.1, de;q=0",
        b"*",
        b"x;q=inf",
        b"",
    ],
    b"user-agent": [b"Mozilla", b"iPhone Mobile", b"Android", b"iPad Mobile", b""],
    b"x-forwarded-host": [b"intra.example", b"evil.example"],
    b"x-forwarded-proto": [b"https"],
    b"x_plan": [b"gold"],
    b"x-other": [b"gold", b"silver, gold", b"\0", b"a\nb"],
}


def _random_host(rng: random.Random) -> bytes:
    host = rng.choice(["shop.example", "www.shop.example", "intra.example", "evil.example"])
    if rng.random() < 0.4:
        host = rng.choice([
            host.upper(), host + ".", host + ":80", host + ":0080", host + ":443", host + ".:80", host + ":",
            host + "..", " " + host, host + ":8080", "x@" + host, host.replace("e", "%65"), host + ", a",
        ])  # fmt: skip
    return host.encode()


def _random_cookies(rng: random.Random) -> bytes:
    parts = [
        rng.choice([
            "lang=de", "lang=en", "theme=dark", "other=1", "sessionid=a", "lang =de", "sessionid =b", "lang",
            " lang= de", 'lang="de"', 'other="x', 'y"', "\xa0sessionid=c", "lang=", "", "lang=d e", "LANG=de",
            "sessionid\t=x", "lang=de,sessionid=x", "$Path=/", 'other="a b"', "other={x: 1}",
            "path=/", "$lang=de",
            "Version=1", "secure", "domain=x", "lang=\0", "; ",
        ])
        for _ in range(rng.randint(1, 3))
    ]  # fmt: skip
    return rng.choice(["; ", ";", " ;  "]).join(parts).encode("latin-1")


def asgi_scope(
    rng: random.Random, path: bytes, query: bytes, fields: list[tuple[bytes, bytes]]
) -> dict[str, Any]:
    """Return the scope of a GET, as servers make it; some leave `raw_path` out."""
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "scheme": rng.choice(["http", "https"]), "http_version": "1.1",
        "path": unquote(path.decode("latin-1")), "query_string": query, "headers": fields,
        "root_path": rng.choice(MOUNTS), "server": rng.choice(SERVERS),
    }  # fmt: skip
    if rng.random() < 0.8:
        scope["raw_path"] = path if rng.random() < 0.97 else rng.choice([b"", None, b"/admin/x"])
    return scope


def wsgi_environ(
    rng: random.Random, path: bytes, query: bytes, fields: list[tuple[bytes, bytes]]
) -> dict[str, Any]:
    """Return the environ of a GET, as servers make it: a field that is there twice has its values joined."""
    server_name, server_port = rng.choice(SERVERS)
    path_text, mount = unquote_to_bytes(path).decode("latin-1"), rng.choice(MOUNTS)
    mount = mount if path_text.startswith(mount + "/") else ""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "GET", "wsgi.url_scheme": rng.choice(["http", "https"]),
        "SCRIPT_NAME": mount, "PATH_INFO": path_text[len(mount) :], "QUERY_STRING": query.decode("latin-1"),
        "SERVER_NAME": server_name, "SERVER_PORT": str(server_port),
    }  # fmt: skip
    for name, value in fields:
        if b"_" in name:
            continue  # servers drop it
        variable, text = "HTTP_" + name.decode().upper().replace("-", "_"), value.decode("latin-1")
        environ[variable] = f"{environ[variable]},{text}" if variable in environ else text
    if rng.random() < 0.5:
        environ["RAW_URI"] = (path + b"?" + query).decode("latin-1")
    return environ
