"""The user of a server with SASL, in the files that ours reads, and memcached with its password database."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib

USER, PASSWORD = "client", "a password"


def sasl_environment(folder: pathlib.Path, user: str, password: str) -> dict[str, str]:
    """Writes the files of one user; returns the variables by which a server finds them."""
    users_file = folder / "users"
    # Cyrus SASL, which memcached uses, appends the host name to the user name.
    names = (user, f"{user}@{socket.gethostname()}")
    users_file.write_text("".join(f"{name}:{password}\n" for name in names))
    (folder / "memcached.conf").write_text("mech_list: PLAIN\n")
    return {"MEMCACHED_SASL_PWDB": str(users_file), "SASL_CONF_PATH": str(folder)}
