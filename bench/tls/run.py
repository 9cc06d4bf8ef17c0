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
START_TIMEOUT_S = 10.0


class Server:
    """A server process with TLS on the first processor."""

    def __init__(self, command: list[str], port: int, authority: Authority) -> None:
        self.address = f"localhost:{port}"
        own_cpus = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {SERVER_CPU})  # The process inherits it, with all its threads.
        try:
            self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        finally:
            os.sched_setaffinity(0, own_cpus)
        try:
            self._wait_until_served(port, authority)
        except BaseException:
            self.stop()
            raise

    def _wait_until_served(self, port: int, authority: Authority) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with (
                    socket.create_connection(("127.0.0.1", port), START_TIMEOUT_S) as plain_socket,
                    authority.context().wrap_socket(
                        plain_socket, server_hostname="localhost"
                    ) as connection,
                ):
                    if connection.version() == "TLSv1.3":
                        return
                    raise SystemExit(f"{self.address} has no TLS 1.3")
            except OSError:
                time.sleep(0.02)
        raise SystemExit(f"does not start with TLS: {' '.join(self._process.args)}")  # type: ignore[arg-type]

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def start_cache_server(command: list[str], identity: Identity, authority: Authority) -> Server:
    """Starts ours or memcached, which take the same flags."""
    port = free_port()
    flags = ["-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "1", "-m", "512", "-c", "1024"]
    flags += ["-u", "root"] if is_root() else []
    return Server([*command, *flags, *identity.options()], port, authority)


def start_echo_server(folder: pathlib.Path, identity: Identity, authority: Authority) -> Server:
    """Starts the server of echo.c. Its name begins with ours, so that `bench` counts its CPU."""
    program, port = folder / "glasscache-echo", free_port()
    source = pathlib.Path(__file__).with_name("echo.c")
    compiler = os.environ.get("CC", "cc")
    build_command = [compiler, "-O2", "-Wall", "-o", program, source, "-lssl", "-lcrypto"]
    subprocess.run(build_command, check=True)
    command = [str(program), str(port), str(identity.chain), str(identity.key)]
    return Server(command, port, authority)


def run_bench(binary: str, bench_arguments: list[str], authority: Authority) -> dict[str, object]:
    """Measures once and returns the result."""
    connection_options = [
        "--connections",
        str(CONNECTIONS),
        "--depth",
        str(DEPTH),
        "--cpus",
        str(GENERATOR_CPU),
    ]
    command = [
        binary,
        "bench",
        *bench_arguments,
        *connection_options,
        "--tls",
        "--tls-ca",
        str(authority.file),
    ]
    completed = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    if completed.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {completed.stderr}")
    return json.loads(completed.stdout)["result"]  # type: ignore[no-any-return]


def median_and_range(values: list[float], digits: int = 2) -> str:
    """A median and its range."""
    median, low, high = statistics.median(values), min(values), max(values)
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main() -> int:
    """Prints CPU of a request and ratios; returns 0 if both ratios are at most RATIO_MAX."""
    # An ended script leaves no process behind: the signal becomes an exception, and the servers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "target/release/glasscache"))
    parser.add_argument("--memcached", required=True, help="a memcached with TLS")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of each server in a round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    authority = Authority()
    identity = authority.sign("server")
    servers: list[Server] = []
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            our_server = start_cache_server([options.binary, "serve"], identity, authority)
            servers.append(our_server)
            memcached_server = start_cache_server([options.memcached], identity, authority)
            servers.append(memcached_server)
            echo_server = start_echo_server(pathlib.Path(folder), identity, authority)
            servers.append(echo_server)
            for size in SIZES:
                ratios: list[float] = []
                cpu_us: dict[str, list[float]] = {"ours": [], "memcached": [], "openssl": []}
                load_options = [
                    "--size",
                    str(size),
                    "--for",
                    f"{options.seconds}s",
                    "--warm-up",
                    "500ms",
                ]
                for _ in range(options.rounds):
                    result = run_bench(
                        options.binary,
                        [our_server.address, "--vs", memcached_server.address, *load_options],
                        authority,
                    )
                    ratios.append(result["ratio"]["server_cpu_us"]["value"])  # type: ignore[index]
                    cpu_us["ours"].append(result["server_cpu_us"])  # type: ignore[arg-type]
                    cpu_us["memcached"].append(result["vs"]["server_cpu_us"])  # type: ignore[index]
                    echo_result = run_bench(
                        options.binary,
                        [echo_server.address, *load_options, "--keys", "1"],
                        authority,
                    )
                    cpu_us["openssl"].append(echo_result["server_cpu_us"])  # type: ignore[arg-type]
                results.append({"value_bytes": size, "cpu_us": cpu_us, "ratio": ratios})
                if not options.json:
                    print(
                        f"get {size} B: CPU ratio {median_and_range(ratios)} of at most {RATIO_MAX}"
                    )
                    for name, values in cpu_us.items():
                        print(
                            f"  {name:10} {median_and_range(values)} us of the server for a request"
                        )
        finally:
            for server in servers:
                server.stop()
    if options.json:
        print(json.dumps({"connections": CONNECTIONS, "depth": DEPTH, "sizes": results}))
    medians = [statistics.median(result["ratio"]) for result in results]  # type: ignore[call-overload]
    return 0 if max(medians) <= RATIO_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
