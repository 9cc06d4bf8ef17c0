"""Certificates for the live checks, made by OpenSSL in a temporary folder, and the contexts of clients."""

from __future__ import annotations

import atexit
import pathlib
import shutil
import ssl
import subprocess
import tempfile
from dataclasses import dataclass

SUBJECT_ALT_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"
ELLIPTIC_CURVE_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
RSA_KEY = ["-newkey", "rsa:2048"]


@dataclass(frozen=True)
class Identity:
    """A certificate and its key."""

    chain: pathlib.Path
    key: pathlib.Path

    def options(self, *settings: str) -> tuple[str, ...]:
        """The options of a server that presents it."""
        return (
            "-Z",
            "-o",
            ",".join([f"ssl_chain_cert={self.chain}", f"ssl_key={self.key}", *settings]),
        )


class Authority:
    """An authority of its own in a folder of its own, which goes away with the process."""

    def __init__(self, name: str = "authority") -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="certificates-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.file = self.folder / "authority.pem"
        self._key = self.folder / "authority.key"
        openssl("req", "-x509", *ELLIPTIC_CURVE_KEY, "-nodes", "-keyout", self._key, "-out", self.file,
                "-days", "2", "-subj", f"/CN={name}")  # fmt: skip

    def sign(self, name: str, key_options: list[str] | None = None, days: int = 2) -> Identity:
        """A certificate for this machine; with negative `days` it has expired."""
        identity = Identity(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        request_file, extensions_file = self.folder / f"{name}.csr", self.folder / "extensions"
        extensions_file.write_text(SUBJECT_ALT_NAMES)
        openssl("req", "-new", *(key_options or ELLIPTIC_CURVE_KEY), "-nodes", "-keyout", identity.key,
                "-out", request_file,
                "-subj", f"/CN={name}")  # fmt: skip
        openssl("x509", "-req", "-in", request_file, "-CA", self.file, "-CAkey", self._key, "-out",
                identity.chain, "-days", str(days), "-extfile", extensions_file)  # fmt: skip
        return identity

    def context(self, identity: Identity | None = None) -> ssl.SSLContext:
        """What a client needs that trusts this authority and presents `identity`."""
        context = ssl.create_default_context(cafile=str(self.file))
        if identity:
            context.load_cert_chain(identity.chain, identity.key)
        return context


def openssl(*arguments: object) -> None:
    """Runs the command; its output is shown only if it fails."""
    command = ["openssl", *map(str, arguments)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {completed.stderr}")
