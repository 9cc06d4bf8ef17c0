"""Hostile loads: too much, too slow, never read. Others are served, and memory comes back."""

from __future__ import annotations

import random
import threading
import time

from harness import RequirementFailed, Server, ServerConnection, case, p99, require

RANDOM_SEED = 21


def store_values_without_replies(
    connection: ServerConnection, count: int, size: int, key_prefix: bytes = b"fill"
) -> None:
    """Stores `count` values of `size` bytes without replies."""
    value = b"v" * size
    batch = bytearray()
    for number in range(count):
        batch += b"set %s%d 0 0 %d noreply\r\n%s\r\n" % (key_prefix, number, size, value)
        if len(batch) > 1 << 18:
            connection.send(bytes(batch))
            batch.clear()
    require(connection.send_request(bytes(batch) + b"mn\r\n") == b"MN", "a noreply set had a reply")


@case()
def one_key_seventy_thousand_times(server: Server) -> str:
    """One get that names one key 70,000 times: memcached returns 59,999 of them, all 70,000 are better."""
    with server.connect(30) as connection:
        require(connection.set(b"k", b"v") == b"STORED", "not stored")
        connection.send(b"get" + b" k" * 70_000 + b"\r\n")
        value_count = 0
        while (line := connection.read_line()) != b"END":
            require(line.startswith((b"VALUE k 0 1", b"SERVER_ERROR")), f"got {line!r}")
            if line.startswith(b"SERVER_ERROR"):
                break
            require(connection.read_value(1) == b"v", "another value")
            value_count += 1
        require(value_count >= 59_999, f"only {value_count} values")
        require(connection.is_in_sync(), "out of step")
        return f"{value_count} values"


@case("extra", options=("-m", "64"))
def one_megabyte_of_keys(server: Server) -> str:
    """80,000 keys in one get have a reply and cost at most 24 MB."""
    resident_mb_before = server.resident_mb()
    resident_mb_peak = resident_mb_before
    stop = threading.Event()

    def watch_resident_mb() -> None:
        nonlocal resident_mb_peak
        while not stop.wait(0.002):
            resident_mb_peak = max(resident_mb_peak, server.resident_mb())

    memory_watcher = threading.Thread(target=watch_resident_mb)
    memory_watcher.start()
    try:
        with server.connect(30) as connection:
            connection.send(
                b"get " + b" ".join(b"absent%06d" % number for number in range(80_000)) + b"\r\n"
            )
            reply = connection.read_line()
            require(reply == b"END", f"reply {reply!r}")
            require(connection.is_in_sync(), "out of step")
    finally:
        stop.set()
        memory_watcher.join()
    growth_mb = max(resident_mb_peak, server.resident_mb()) - resident_mb_before
    require(growth_mb <= 24, f"{growth_mb:.0f} MB more resident")
    return f"{growth_mb:+.1f} MB"


@case()
def fifty_thousand_pipelined_gets(server: Server) -> None:
    """Each has its reply, in order."""
    with server.connect(30) as connection:
        for number in range(100):
            connection.set(b"p%d" % number, b"%d" % number)
        sender = threading.Thread(
            target=connection.send,
            args=(b"".join(b"get p%d\r\n" % (number % 100) for number in range(50_000)),),
        )
        sender.start()
        for number in range(50_000):
            expected = b"%d" % (number % 100)
            require(
                connection.read_line() == b"VALUE p%s 0 %d" % (expected, len(expected)),
                f"reply {number} is another key's",
            )
            require(
                connection.read_line() == expected and connection.read_line() == b"END",
                f"reply {number} is wrong",
            )
        sender.join()


@case()
def slow_writers_and_half_commands(server: Server) -> str:
    """20 writers at a byte every 20 ms and 500 half commands: others wait less than 250 ms, 16 KB each."""
    resident_mb_before = server.resident_mb()
    half_senders = [server.connect() for _ in range(500)]
    for connection in half_senders:
        connection.send(b"set half 0 0 100\r\n" + b"x" * 50)
    slow_writers = [server.connect() for _ in range(20)]
    request = b"set slow 0 0 10\r\n0123456789\r\n"
    latency_s_max = 0.0
    with server.connect() as other_client:
        for byte in request:
            for connection in slow_writers:
                connection.send(bytes([byte]))
            started_at = time.monotonic()
            require(other_client.is_in_sync(), "another client got a wrong reply")
            latency_s_max = max(latency_s_max, time.monotonic() - started_at)
            time.sleep(0.02)
    for connection in slow_writers:
        require(connection.read_line() == b"STORED", "a slow writer had no reply")
    kb_per_connection = (server.resident_mb() - resident_mb_before) * 1024 / 520
    for connection in half_senders + slow_writers:
        connection.socket.close()
    require(kb_per_connection <= 16, f"{kb_per_connection:.1f} KB for each half command")
    require(latency_s_max < 0.25, f"another client waited {latency_s_max * 1000:.0f} ms")
    return f"{kb_per_connection:.1f} KB each, others wait {latency_s_max * 1000:.1f} ms"


def send_without_reading(
    server: Server, requests: bytes, repeat_count: int, connection_count: int
) -> str:
    """Sends while the server takes it and reads nothing: backpressure, and no memory beyond 40 MB."""
    resident_mb_before = server.resident_mb()
    connections = [server.connect(0.3, receive_buffer=4096) for _ in range(connection_count)]
    sent_bytes = 0
    resident_mb_peak = resident_mb_before
    for connection in connections:
        try:
            for _ in range(repeat_count):
                connection.send(requests)
                sent_bytes += len(requests)
        except (TimeoutError, ConnectionError):
            pass
        resident_mb_peak = max(resident_mb_peak, server.resident_mb())
    with server.connect() as other_client:
        require(other_client.is_in_sync(), "another client is not served")
    resident_mb_peak = max(resident_mb_peak, server.resident_mb())
    for connection in connections:
        connection.socket.close()
    require(
        resident_mb_peak - resident_mb_before <= 40,
        f"{resident_mb_peak - resident_mb_before:.0f} MB more resident",
    )
    return f"{sent_bytes >> 10} KB taken, {resident_mb_peak - resident_mb_before:+.1f} MB"


@case()
def reader_that_never_reads_200_mb(server: Server) -> str:
    """200 gets of 1 MB, no reply read."""
    with server.connect() as connection:
        require(connection.set(b"mega", b"m" * 1_000_000) == b"STORED", "not stored")
    return send_without_reading(server, b"get mega\r\n", 200, 1)


@case()
def reader_that_never_reads_endless_pipeline(server: Server) -> str:
    """Small gets without end, no reply read."""
    with server.connect() as connection:
        connection.set(b"small", b"s" * 100)
    return send_without_reading(server, b"get small\r\n" * 4096, 2000, 1)


@case()
def readers_that_never_read_multigets(server: Server) -> str:
    """Eight connections request 2000 keys each, many times, and read nothing."""
    with server.connect(30) as connection:
        store_values_without_replies(connection, 2000, 1000, b"many")
    request = b"get " + b" ".join(b"many%d" % number for number in range(2000)) + b"\r\n"
    return send_without_reading(server, request, 100, 8)


@case()
def unread_watch(server: Server) -> None:
    """A watcher that reads nothing loses lines; other clients do not wait."""
    with server.connect(5, receive_buffer=4096) as watcher, server.connect() as connection:
        require(watcher.send_request(b"watch fetchers mutations\r\n") == b"OK", "no OK")
        resident_mb_before = server.resident_mb()
        for _ in range(30):
            connection.send(b"get nothing_for_the_watcher\r\n" * 1000)
            for _ in range(1000):
                require(connection.read_line() == b"END", "no END")
        require(server.resident_mb() - resident_mb_before < 16, "the log grew")
    require(server.is_alive(), "the server is gone")


@case()
def unread_metadump(server: Server) -> None:
    """A dump that is not read stalls no other client, and a later dump ends."""
    with server.connect(10) as connection:
        store_values_without_replies(connection, 20_000, 10, b"dump")
    with server.connect(5, receive_buffer=4096) as stalled_connection:
        stalled_connection.send(b"lru_crawler metadump all\r\n")
        with server.connect() as connection:
            require(connection.is_in_sync(), "another client is not served")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with server.connect(20) as connection:
            reply = connection.send_request(b"lru_crawler metadump all\r\n")
            if reply.startswith(b"BUSY"):
                time.sleep(0.2)
                continue
            while reply not in (b"END", b""):
                reply = connection.read_line()
            require(reply == b"END", "the dump did not end")
            return
    raise RequirementFailed("no second dump within 20 s")


@case(options=("-m", "64"))
def churn_and_change_of_sizes(server: Server) -> str:
    """2.5 times the memory in large values, then tiny ones, then 100 KB: none refused, 150 of 200 kept."""
    rng = random.Random(RANDOM_SEED)
    refused_count = 0
    with server.connect(60) as connection:
        for number in range(800):
            refused_count += (
                connection.set(b"large%d" % number, b"L" * rng.randint(100_000, 300_000))
                != b"STORED"
            )
        for start in range(0, 200_000, 1000):
            connection.send(
                b"".join(
                    b"set tiny%d 0 0 10\r\n0123456789\r\n" % (start + offset)
                    for offset in range(1000)
                )
            )
            refused_count += sum(connection.read_line() != b"STORED" for _ in range(1000))
        for number in range(200):
            refused_count += connection.set(b"hundred%d" % number, b"h" * 100_000) != b"STORED"
        kept_count = sum(connection.get(b"hundred%d" % number) is not None for number in range(200))
    require(refused_count == 0, f"{refused_count} sets refused")
    require(kept_count >= 150, f"only {kept_count} of 200 kept")
    return f"{kept_count} of 200 kept"


STALLED_UPLOADS = 900
# Of one core, while no other request is sent.
STALLED_CPU_SHARE = 0.05


def get_p99_us(server: Server, seconds: float) -> float:
    """The 99th percentile of one client's gets, one after the other, in microseconds."""
    latencies_s = []
    with server.connect() as connection:
        connection.set(b"small", b"v" * 32)
        deadline = time.monotonic() + seconds
        while (started_at := time.monotonic()) < deadline:
            require(connection.get(b"small") is not None, "a miss")
            latencies_s.append(time.monotonic() - started_at)
    return p99(latencies_s) * 1e6


@case("extra", options=("-m", "64", "-c", "2048"))
def nine_hundred_stalled_uploads(server: Server) -> str:
    """900 clients send 200 bytes of 1 MB each and stop: at most 5 % of a core, others are served."""
    idle_p99_us = get_p99_us(server, 3)
    connections = [server.connect() for _ in range(STALLED_UPLOADS)]
    for number, connection in enumerate(connections):
        connection.send(b"set stalled%d 0 0 1000000\r\n" % number + b"x" * 200)
    cpu_shares = []
    loaded_p99_us = []
    for _ in range(3):
        started_at, cpu_s_before = time.monotonic(), server.cpu_seconds()
        time.sleep(1)
        cpu_shares.append((server.cpu_seconds() - cpu_s_before) / (time.monotonic() - started_at))
        loaded_p99_us.append(get_p99_us(server, 1))
    for connection in connections:
        connection.socket.close()
    cpu_share, median_p99_us = sum(cpu_shares) / len(cpu_shares), sorted(loaded_p99_us)[1]
    summary = (
        f"{cpu_share:.1%} of a core; p99 of gets {idle_p99_us:.0f} us without them,"
        f" {median_p99_us:.0f} us with them, x{median_p99_us / idle_p99_us:.2f}"
    )
    require(cpu_share <= STALLED_CPU_SHARE, summary)
    return summary
