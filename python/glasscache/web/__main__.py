"""The command line: `glasscache web explain URL`, `purge` and `tag`; also `python -m glasscache.web`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from glasscache.client import Client
from glasscache.errors import BadSetting, GlasscacheError
from glasscache.web.explain import COLUMN, explain
from glasscache.web.listing import KEYS_MAX, URLS_MAX
from glasscache.web.purge import Purger
from glasscache.web.rules import Rules
from glasscache.web.settings import CacheSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_EXAMPLES: Final = """\
examples:
  glasscache web explain http://shop.example/lamps --rules rules.toml
  glasscache web explain http://shop.example/lamps -H 'Cookie: session=1'
  glasscache web purge --tag lamps --soft
  glasscache web tag lamps"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for a wrong argument, or 3 if the cache cannot be reached."""
    options = _build_parser().parse_args(arguments)
    try:
        text, result = _run_command(options)
    except (BadSetting, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except GlasscacheError as error:
        sys.stderr.write(f"the cache cannot be read: {error}\n")
        return 3
    sys.stdout.write(json.dumps(result) + "\n" if options.json else text)
    return 0


def _build_parser() -> argparse.ArgumentParser:
    common_parser = argparse.ArgumentParser(add_help=False)
    common_parser.add_argument(
        "-s", "--server", action="append", metavar="ADDR",
        help="address of a cache server (127.0.0.1:11211); write one option for each",
    )  # fmt: skip
    common_parser.add_argument("--rules", help="the rules of the middleware, a TOML file")
    common_parser.add_argument(
        "--namespace", default="web", help="that of the middleware's settings"
    )
    common_parser.add_argument(
        "--version", "--site-version", default="", help="that of the middleware's settings"
    )
    common_parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser = argparse.ArgumentParser(
        prog="glasscache web",
        description="Explain or purge what the HTTP cache of an application stores.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    explain_parser = commands.add_parser(
        "explain",
        parents=[common_parser],
        help="print what decides about a URL, and what is stored",
    )
    explain_parser.add_argument("url", help="an absolute URL")
    explain_parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME:VALUE", help="of the request"
    )
    explain_parser.add_argument("-X", "--method", default="GET", help="of the request (GET)")
    explain_parser.add_argument(
        "--mount", default="", metavar="/PREFIX",
        help="where the application is mounted (root_path, SCRIPT_NAME), which is in its keys",
    )  # fmt: skip
    purge_parser = commands.add_parser(
        "purge", parents=[common_parser], help="remove responses, or make them stale"
    )
    target_group = purge_parser.add_mutually_exclusive_group(required=True)
    target_group.add_argument("--url", help="the responses of an absolute URL")
    target_group.add_argument("--prefix", help='such as "shop.example/lamps/"')
    target_group.add_argument("--tag", help="each response with this tag")
    purge_parser.add_argument(
        "--soft", action="store_true", help="send the old responses while they are refreshed"
    )
    tag_parser = commands.add_parser(
        "tag", parents=[common_parser], help="list the URLs that are stored with a tag"
    )
    tag_parser.add_argument("tag")
    tag_parser.add_argument("--keys-max", type=int, default=KEYS_MAX, help="keys to look at")
    tag_parser.add_argument("--limit", type=int, default=URLS_MAX, help="URLs to print")
    return parser


def _run_command(options: argparse.Namespace) -> tuple[str, Any]:
    """Return what a command prints, as text and as the result in JSON."""
    rules = Rules.from_toml(options.rules) if options.rules else None
    settings = CacheSettings(namespace=options.namespace, version=options.version)
    with Client(options.server or "127.0.0.1:11211", timeout=5) as client:
        if options.command == "explain":
            return _explain(options, client, rules, settings)
        purger = Purger(client, rules, settings)
        if options.command == "purge":
            return _purge(options, purger)
        listing = purger.list_tag(options.tag, keys_max=options.keys_max, urls_max=options.limit)
    if not listing.is_complete:
        sys.stderr.write(f"not complete: {listing.keys_scanned} keys were looked at\n")
    return "".join(f"{url}\n" for url in listing.urls), listing._asdict()


def _explain(
    options: argparse.Namespace, client: Client, rules: Rules | None, settings: CacheSettings
) -> tuple[str, Any]:
    fields = [
        (name.strip().lower().encode(), value.strip().encode("latin-1"))
        for name, _, value in (header.partition(":") for header in options.header)
    ]
    text = explain(
        client, options.url, fields, rules=rules, method=options.method, settings=settings,
        mount=options.mount, now=time.time(),
    )  # fmt: skip
    lines = [(line[:COLUMN].strip(), line[COLUMN:]) for line in text.splitlines()]
    return text, [{"name": name, "value": value} for name, value in lines]


def _purge(options: argparse.Namespace, purger: Purger) -> tuple[str, Any]:
    was_stored = True
    if options.url:
        was_stored = purger.url(options.url, soft=options.soft)
    elif options.prefix:
        purger.prefix(options.prefix, soft=options.soft)
    else:
        purger.tag(options.tag, soft=options.soft)
    text = (
        "purged\n"
        if was_stored
        else (
            f"nothing was stored under namespace {options.namespace!r} and version {options.version!r}: "
            "write those of the middleware's settings, --namespace and --version\n"
        )
    )
    return text, {"is_purged": was_stored, "soft": options.soft}


if __name__ == "__main__":
    sys.exit(main())
