"""The command line: `python -m glasscache.web explain URL` and `purge`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from glasscache.client import Client
from glasscache.errors import BadSetting, GlasscacheError
from glasscache.web.explain import explain
from glasscache.web.purge import Purger
from glasscache.web.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for a wrong argument, or 3 if the cache cannot be reached."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--server", action="append", help="address of a cache server (127.0.0.1:11211)"
    )
    common.add_argument("--rules", help="the rules of the middleware, a TOML file")
    common.add_argument("--namespace", default="web", help="that of the middleware")
    common.add_argument("--version", default="", help="that of the middleware")
    parser = argparse.ArgumentParser(
        prog="python -m glasscache.web", description="Look into the HTTP cache."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser(
        "explain", parents=[common], help="what decides about a URL, and what is stored"
    )
    one.add_argument("url")
    one.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME:VALUE", help="of the request"
    )
    one.add_argument("-X", "--method", default="GET")
    two = commands.add_parser("purge", parents=[common], help="remove URLs, or make them stale")
    what = two.add_mutually_exclusive_group(required=True)
    what.add_argument("--url", help="one absolute URL")
    what.add_argument("--prefix", help='such as "shop.example/lamps/"')
    what.add_argument("--tag")
    two.add_argument(
        "--soft", action="store_true", help="serve the old responses while they are refreshed"
    )
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except (BadSetting, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except GlasscacheError as error:
        sys.stderr.write(f"the cache cannot be read: {error}\n")
        return 3


def _run(options: argparse.Namespace) -> int:
    rules = Rules.from_toml(options.rules) if options.rules else None
    with Client(options.server or "127.0.0.1:11211", timeout=5) as client:
        if options.command == "explain":
            fields = [
                (name.strip().lower().encode(), value.strip().encode("latin-1"))
                for name, _, value in (header.partition(":") for header in options.header)
            ]
            sys.stdout.write(
                explain(
                    client, options.url, fields, rules=rules, method=options.method,
                    namespace=options.namespace, version=options.version, now=time.time(),
                )
            )  # fmt: skip
            return 0
        purger = Purger(client, rules, namespace=options.namespace, version=options.version)
        if options.url:
            found = purger.url(options.url, soft=options.soft)
            sys.stdout.write("purged\n" if found else "nothing was stored\n")
        elif options.prefix:
            purger.prefix(options.prefix, soft=options.soft)
            sys.stdout.write("purged\n")
        else:
            purger.tag(options.tag, soft=options.soft)
            sys.stdout.write("purged\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
