"""TLS to the servers: whom a client trusts, what it presents, and which name it expects.

>>> TLS(ca_file="authority.pem").server_name is None
True
"""

# No `from __future__ import annotations`: with it, each field's type is a text that Python parses.

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from glasscache.errors import BadSetting

if TYPE_CHECKING:
    import ssl
    from collections.abc import Generator
    from typing import TypeAlias, TypeGuard

    Files: TypeAlias = tuple[str | None, str | None, str | None, str | None]

__all__ = ["TLS"]


class TLS(NamedTuple):
    """How the connections of a client are encrypted; the files are read when the client is made.

    A server's certificate is always verified, against its authorities and against its host's name.
    """

    ca_file: str | os.PathLike[str] | None = None
    """PEM file with the authorities of the servers' certificates; None: those of the system."""
    certificate: str | os.PathLike[str] | None = None
    """PEM file with the certificate that the client presents, for servers that require one."""
    key: str | os.PathLike[str] | None = None
    """PEM file with its private key; None if it is in the same file."""
    server_name: str | None = None
    """The name in the servers' certificates; None: each server's own host."""

    def files(self) -> "Files":
        """Return the settings as texts."""
        paths = (self.ca_file, self.certificate, self.key)
        ca_file, certificate, key = (None if path is None else os.fspath(path) for path in paths)
        return ca_file, certificate, key, self.server_name

    def context(self) -> "ssl.SSLContext":
        """Return the same for asyncio, which has TLS of its own."""
        import ssl  # noqa: PLC0415 - most programs do not need it

        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            # As the blocking client's library: a trusted certificate need not be a root, and a common name is
            # not the name of a host.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.hostname_checks_common_name = False
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            raise BadSetting(f"tls: {self} cannot be used: {error}") from None
        if self.certificate is None and self.key is not None:
            raise BadSetting("tls: a key without its certificate")
        return context


def normalise_tls(tls: Any) -> "TLS | ssl.SSLContext | None":
    """Return the settings, given them, True for the system's authorities, or False or None.

    A context is taken if it verifies what this client always verifies: its authorities are used (those of the
    system if it has none of its own). Python does not say whether it holds a certificate to present, so that
    takes a `TLS`.
    """
    if isinstance(tls, TLS):
        return tls
    if tls is None or tls is False:
        return None
    if tls is True:
        return TLS()
    if not _is_context(tls):
        raise BadSetting(
            f"tls: True, TLS(ca_file=..., ...) or an ssl.SSLContext, not {type(tls).__name__}"
        )
    if not tls.check_hostname:  # which requires a certificate
        raise BadSetting(
            "tls: this ssl.SSLContext does not verify names, and every connection here is verified: "
            "write TLS(ca_file=..., server_name=...)"
        )
    return tls


@contextlib.contextmanager
def tls_files(tls: "TLS | ssl.SSLContext") -> "Generator[Files | None]":
    """Give the files of `normalise_tls`'s result, which are to be read in the block."""
    if isinstance(tls, TLS):
        yield tls.files()
        return
    authorities = tls.get_ca_certs(binary_form=True)
    if not authorities:
        yield TLS().files()
        return
    import ssl  # noqa: PLC0415 - most programs do not need it
    import tempfile  # noqa: PLC0415 - likewise

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.writelines(map(ssl.DER_cert_to_PEM_cert, authorities))
        file.flush()
        yield TLS(file.name).files()


def asyncio_tls(tls: Any, servers: list[str]) -> "tuple[ssl.SSLContext, str | None] | None":
    """Return the context and the name to verify, None for each server's own; None without TLS."""
    if _is_context(tls):
        check_tls_servers(servers)
        return tls, None
    settings = normalise_tls(tls)
    if not isinstance(settings, TLS):
        return None
    check_tls_servers(servers)
    return settings.context(), settings.server_name


def _is_context(tls: Any) -> "TypeGuard[ssl.SSLContext]":
    """Whether it is a context: only a program that imported `ssl` can have one."""
    ssl_module = sys.modules.get("ssl")
    return ssl_module is not None and isinstance(tls, ssl_module.SSLContext)


def check_tls_servers(servers: list[str]) -> None:
    """Refuse servers that TLS cannot be used with."""
    for server in (part.strip() for text in servers for part in text.split(",")):
        if server.startswith(("/", "unix:")):
            raise BadSetting(f"server {server}: a unix socket has no TLS")
