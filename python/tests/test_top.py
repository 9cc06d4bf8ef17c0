"""`glasscache top` on a terminal: it draws, follows keys, and leaves a clean terminal however it ends."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import termios
import time

import pytest
from glasscache.server import find_command

ENTER_SCREEN = b"\x1b[?1049h"
LEAVE_SCREEN = b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"
TIMEOUT_S = 20


def read_until(terminal: int, expected: bytes, text: bytes = b"") -> bytes:
    """Read what the program prints until `expected` is in it."""
    deadline = time.monotonic() + TIMEOUT_S
    while expected not in text:
        assert time.monotonic() < deadline, text
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                text += os.read(terminal, 65_536)
            except OSError:  # the program has closed its end
                break
    assert expected in text, text
    return text


@pytest.mark.parametrize("end", [b"q", b"\x1b", b"\x03", signal.SIGTERM])
def test_the_terminal_is_clean_after(end: bytes | signal.Signals) -> None:
    """A dead server is a row with the reason; a key, Ctrl-C or a signal ends the program."""
    terminal, program_end = pty.openpty()
    termios.tcsetwinsize(program_end, (24, 80))
    program = subprocess.Popen(
        [find_command(), "top", "127.0.0.1:1", "--interval", "0.2"],
        stdin=program_end,
        stdout=program_end,
        stderr=program_end,
        env={**os.environ, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(program_end)
    try:
        text = read_until(terminal, b"127.0.0.1:1")
        assert ENTER_SCREEN in text
        if isinstance(end, bytes):
            os.write(terminal, b"\x1b[Cr" + end)
        else:
            program.send_signal(end)
        text = read_until(terminal, LEAVE_SCREEN, text)
        assert program.wait(TIMEOUT_S) == 0
        assert SHOW_CURSOR in text or b"\x1b[?25l" not in text
    finally:
        program.kill()
        program.wait()
        os.close(terminal)
