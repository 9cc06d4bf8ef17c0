"""A pytest plugin: `pymemcache` and its modules are our drop-in modules.

The project's tests feed canned replies through a socket object of their own. Our client opens its sockets itself, so a
`make_client` with canned replies gets a client of a server that plays those replies over TCP. It closes the connection
on a meta command, as a proxy does that knows only the classic ones: our client then speaks what the replies answer.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from glasscache.compat import pymemcache
from glasscache.compat.pymemcache import client, exceptions, serde
from glasscache.compat.pymemcache.client import base, hash, retrying
from played import play

sys.modules.update({
    "pymemcache": pymemcache, "pymemcache.client": client, "pymemcache.client.base": base,
    "pymemcache.client.hash": hash, "pymemcache.client.retrying": retrying, "pymemcache.exceptions": exceptions,
    "pymemcache.serde": serde,
})  # fmt: skip
