"""Signals: a server that stands still for a while, and one that is told to leave while it is busy."""

from __future__ import annotations

import signal
import threading
import time

from harness import Server, case, require


@case(options=("-m", "64"))
def stopped_for_three_seconds(server: Server) -> str:
    """After SIGSTOP and SIGCONT the first answer comes at once, and what expired meanwhile is gone."""
    with server.connect() as connection:
        require(connection.set(b"short", b"v", exptime=2) == b"STORED", "not stored")
        server.signal(signal.SIGSTOP)
        time.sleep(3)
        begun = time.monotonic()
        server.signal(signal.SIGCONT)
        require(connection.is_in_sync(), "not served")
        waited = time.monotonic() - begun
        require(waited < 0.25, f"answered after {waited * 1000:.0f} ms")
        deadline = time.monotonic() + 1.5
        while connection.get(b"short") is not None:
            require(time.monotonic() < deadline, "expiry was not caught up")
            time.sleep(0.02)
    return f"answered after {waited * 1000:.1f} ms"


def under_load(server: Server, number: int, within: float) -> str:
    """Signals a busy server; every reply read until the end is whole, and the process leaves in time."""
    broken: list[str] = []

    def load() -> None:
        try:
            with server.connect(5) as connection:
                while True:
                    reply = connection.set(b"load", b"x" * 1000)
                    if reply == b"":
                        return
                    if reply != b"STORED":
                        broken.append(repr(reply))
        except OSError:
            return

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    begun = time.monotonic()
    server.signal(number)
    code = server.process.wait(timeout=10)
    took = time.monotonic() - begun
    for thread in threads:
        thread.join()
    require(took <= within, f"gone after {took:.2f} s")
    require(not broken, f"broken replies: {broken[:2]}")
    if number == signal.SIGTERM:
        require(code in (0, -signal.SIGTERM), f"exit code {code}")
    return f"gone after {took * 1000:.0f} ms, exit code {code}"


@case(options=("-m", "64"))
def sigterm_under_load(server: Server) -> str:
    """SIGTERM: begun requests are answered, gone within a second."""
    return under_load(server, signal.SIGTERM, 1.0)


@case(options=("-m", "64"))
def sigkill_under_load(server: Server) -> str:
    """SIGKILL: gone at once."""
    return under_load(server, signal.SIGKILL, 1.0)
