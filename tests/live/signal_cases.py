"""Signals: a server that is stopped for a while, and one that is terminated under load."""

from __future__ import annotations

import signal
import threading
import time

from harness import Server, case, require


@case(options=("-m", "64"))
def stopped_for_three_seconds(server: Server) -> str:
    """After SIGSTOP and SIGCONT the first reply comes at once, and items that expired meanwhile are gone."""
    with server.connect() as connection:
        require(connection.set(b"short", b"v", exptime=2) == b"STORED", "not stored")
        server.signal(signal.SIGSTOP)
        time.sleep(3)
        started_at = time.monotonic()
        server.signal(signal.SIGCONT)
        require(connection.is_in_sync(), "not served")
        reply_s = time.monotonic() - started_at
        require(reply_s < 0.25, f"reply after {reply_s * 1000:.0f} ms")
        deadline = time.monotonic() + 1.5
        while connection.get(b"short") is not None:
            require(time.monotonic() < deadline, "expiry was not caught up")
            time.sleep(0.02)
    return f"reply after {reply_s * 1000:.1f} ms"


def signal_under_load(server: Server, signal_number: int, exit_s_max: float) -> str:
    """Signals a busy server; every reply read until the end is complete, and the process exits in time."""
    broken_replies: list[str] = []

    def store_until_closed() -> None:
        try:
            with server.connect(5) as connection:
                while True:
                    reply = connection.set(b"load", b"x" * 1000)
                    if reply == b"":
                        return
                    if reply != b"STORED":
                        broken_replies.append(repr(reply))
        except OSError:
            return

    threads = [threading.Thread(target=store_until_closed) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    started_at = time.monotonic()
    server.signal(signal_number)
    exit_code = server.process.wait(timeout=10)
    exit_s = time.monotonic() - started_at
    for thread in threads:
        thread.join()
    require(exit_s <= exit_s_max, f"exited after {exit_s:.2f} s")
    require(not broken_replies, f"broken replies: {broken_replies[:2]}")
    if signal_number == signal.SIGTERM:
        require(exit_code in (0, -signal.SIGTERM), f"exit code {exit_code}")
    return f"exited after {exit_s * 1000:.0f} ms, exit code {exit_code}"


@case(options=("-m", "64"))
def sigterm_under_load(server: Server) -> str:
    """SIGTERM: started requests get their replies, and the process exits within a second."""
    return signal_under_load(server, signal.SIGTERM, 1.0)


@case(options=("-m", "64"))
def sigkill_under_load(server: Server) -> str:
    """SIGKILL: gone at once."""
    return signal_under_load(server, signal.SIGKILL, 1.0)
