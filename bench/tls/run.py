#!/usr/bin/env python3
"""CPU of a request over TLS 1.3: ours, memcached's, and what OpenSSL alone takes.

Three servers on the first processor, the load generator of `glasscache bench` on the second. Each round
measures ours and memcached in interleaved pairs, then the server of echo.c, which does nothing but send a
stored value back. memcached has to be built with TLS (--enable-tls).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "live"))

from certificates import Authority, Identity  # noqa: E402
from harness import free_port, is_root  # noqa: E402

SIZES = (32, 1000)
CONNECTIONS, DEPTH = 50, 16
RATIO_MAX = 0.85
SERVER_CPU, GENERATOR_CPU = 0, 1
START_SECONDS = 10.0


class Server:
    """A server process with TLS on the first processor."""

    def __init__(self, arguments: list[str], port: int, authority: Authority) -> None:
        self.address = f"localhost:{port}"
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {SERVER_CPU})  # The process inherits it, with all its threads.
        try:
            self._process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
        finally:
            os.sched_setaffinity(0, everywhere)
        try:
            self._wait(port, authority)
        except BaseException:
            self.stop()
            raise

    def _wait(self, port: int, authority: Authority) -> None:
        ends = time.monotonic() + START_SECONDS
        while time.monotonic() < ends and self._process.poll() is None:
            try:
                with (
                    socket.create_connection(("127.0.0.1", port), START_SECONDS) as plain,
                    authority.context().wrap_socket(plain, server_hostname="localhost") as wire,
                ):
                    if wire.version() == "TLSv1.3":
                        return
                    raise SystemExit(f"{self.address} has no TLS 1.3")
            except OSError:
                time.sleep(0.02)
        raise SystemExit(f"does not start with TLS: {' '.join(self._process.args)}")  # type: ignore[arg-type]

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def memcached(command: list[str], identity: Identity, authority: Authority) -> Server:
    """Ours or memcached: the same flags."""
    port = free_port()
    flags = ["-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "1", "-m", "512", "-c", "1024"]
    flags += ["-u", "root"] if is_root() else []
    return Server([*command, *flags, *identity.options()], port, authority)


def echo(folder: pathlib.Path, identity: Identity, authority: Authority) -> Server:
    """The server of echo.c. Its name begins with ours, so that `bench` counts its CPU."""
    program, port = folder / "glasscache-echo", free_port()
    source = pathlib.Path(__file__).with_name("echo.c")
    compiler = os.environ.get("CC", "cc")
    build = [compiler, "-O2", "-Wall", "-o", program, source, "-lssl", "-lcrypto"]
    subprocess.run(build, check=True)
    arguments = [str(program), str(port), str(identity.chain), str(identity.key)]
    return Server(arguments, port, authority)


def bench(binary: str, arguments: list[str], authority: Authority) -> dict[str, object]:
    """The result of one measurement."""
    fixed = ["--connections", str(CONNECTIONS), "--depth", str(DEPTH), "--cpus", str(GENERATOR_CPU)]
    command = [binary, "bench", *arguments, *fixed, "--tls", "--tls-ca", str(authority.file)]
    ended = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {ended.stderr}")
    return json.loads(ended.stdout)["result"]  # type: ignore[no-any-return]


def spread(values: list[float], digits: int = 2) -> str:
    """A median and its range."""
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main() -> int:
    """Prints CPU of a request and ratios; returns 0 if both ratios are within the demand."""
    # An ended script leaves no process behind: the signal becomes an exception, and the servers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "target/release/glasscache"))
    parser.add_argument("--memcached", required=True, help="a memcached with TLS")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of each server in a round")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    authority = Authority()
    identity = authority.sign("server")
    servers: list[Server] = []
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            ours = memcached([args.binary, "serve"], identity, authority)
            servers.append(ours)
            theirs = memcached([args.memcached], identity, authority)
            servers.append(theirs)
            alone = echo(pathlib.Path(folder), identity, authority)
            servers.append(alone)
            for size in SIZES:
                ratios: list[float] = []
                cpu_us: dict[str, list[float]] = {"ours": [], "memcached": [], "openssl": []}
                load = ["--size", str(size), "--for", f"{args.seconds}s", "--warm-up", "500ms"]
                for _ in range(args.rounds):
                    pair = bench(
                        args.binary, [ours.address, "--vs", theirs.address, *load], authority
                    )
                    ratios.append(pair["ratio"]["server_cpu_us"]["value"])  # type: ignore[index]
                    cpu_us["ours"].append(pair["server_cpu_us"])  # type: ignore[arg-type]
                    cpu_us["memcached"].append(pair["vs"]["server_cpu_us"])  # type: ignore[index]
                    single = bench(args.binary, [alone.address, *load, "--keys", "1"], authority)
                    cpu_us["openssl"].append(single["server_cpu_us"])  # type: ignore[arg-type]
                results.append({"value_bytes": size, "cpu_us": cpu_us, "ratio": ratios})
                if not args.json:
                    print(f"get {size} B: CPU ratio {spread(ratios)} of at most {RATIO_MAX}")
                    for name, values in cpu_us.items():
                        print(f"  {name:10} {spread(values)} us of the server for a request")
        finally:
            for server in servers:
                server.stop()
    if args.json:
        print(json.dumps({"connections": CONNECTIONS, "depth": DEPTH, "sizes": results}))
    medians = [statistics.median(result["ratio"]) for result in results]  # type: ignore[call-overload]
    return 0 if max(medians) <= RATIO_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
