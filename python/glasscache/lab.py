"""The lab's commands from Python: what they measure and find, as dicts.

Each function runs the command of the same name and returns the `result` of its JSON
(docs/reference/json.md). A keyword is the command's flag: `key_column="url"` is `--key-column url`, True
gives a flag without a value, a list is joined by commas, and `for_="30s"` is `--for 30s`, a word that
Python keeps for itself. `glasscache COMMAND --help` lists the flags.

>>> from glasscache import Server, lab
>>> with Server() as server:
...     found = lab.bench(server.address, for_="200ms", warm_up="50ms", keys=100, connections=2)
>>> found["wrong_values"]
0

An error is a `LabError` with what was found before it; a negative finding, such as wrong values, is a result.
The computations alone, without the command, are in `glasscache.sim`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any, cast

from glasscache.errors import LabError
from glasscache.server import find_command

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "LabError",
    "bench",
    "codec",
    "curve",
    "generate",
    "inspect",
    "profile",
    "record",
    "replay",
    "report",
    "rollout",
    "run",
    "simulate",
    "slabs",
    "tour",
    "why",
]

Path = str | os.PathLike[str]
"""A file or folder."""

_EXIT_NEGATIVE_RESULT = 1
"""Exit code of a negative result."""


def profile(target: str | None = None, **flags: Any) -> dict[str, Any]:
    """Return what a get costs on a server, by size and number of keys, and write the latency table.

    Args:
        target: host:port or unix:PATH; None starts a server for the measurement.
        flags: such as `calls=2000`, `vs="cache2:11211"`, `via="pylibmc"`, `latency_out="latency.json"`.

    """
    return _run_command("profile", target, **flags)


def bench(target: str | None = None, **flags: Any) -> dict[str, Any]:
    """Return what a server does under load.

    Args:
        target: host:port or unix:PATH; None, with `rate`, `closed` or `search`, starts a server.
        flags: such as `rate=20000`, `search="p99.9<1ms"`, `vs="cache2:11211"`, `for_="30s"`.

    """
    return _run_command("bench", target, **flags)


def codec(*samples: Path, **flags: Any) -> dict[str, Any]:
    """Return what serialising and compressing values costs, and the recommended codec.

    `Codec(**result["recommended"]["arguments"])` makes it.

    Args:
        samples: files or folders; each file is a value, and each line of *.jsonl.
        flags: such as `codec=client.codec`, the one in use, `from_="cache1:11211"`, `server="cache1:11211"`,
            `network="100mbit"`.

    """
    return _run_command("codec", *samples, **flags)


def record(server: str, *, out: Path, **flags: Any) -> dict[str, Any]:
    """Record what a server is asked for, and return how many gets and writes are in the file.

    Args:
        server: host:port or the path of a unix socket.
        out: the file to write: .parquet, .csv or .jsonl.
        flags: such as `for_="10m"`, `salt="..."`, `sample=0.1`.

    """
    return _run_command("record", server, out=out, **flags)


def curve(trace: Path, **flags: Any) -> dict[str, Any]:
    """Return the miss ratios of a key stream by size and policy.

    Args:
        trace: a key stream: .parquet, .csv, .jsonl, or a log.
        flags: such as `mode="bytes"`, `policies=["lru", "s3fifo"]`, `capacities=["5%", "10%"]`.

    """
    return _run_command("curve", trace, **flags)


def inspect(trace: Path, **flags: Any) -> dict[str, Any]:
    """Return what is in a key stream or a request log."""
    return _run_command("inspect", trace, **flags)


def slabs(source: Path | None = None, **flags: Any) -> dict[str, Any]:
    """Return the waste of memcached's slab classes, and the best possible classes.

    Args:
        source: a server, a trace or a histogram; None gives the classes of the settings alone.
        flags: such as `memory="1g"`, `factor=1.08`.

    """
    return _run_command("slabs", source, **flags)


def simulate(log: Path, **flags: Any) -> dict[str, Any]:
    """Return what every request of a log would have waited under each strategy.

    Args:
        log: the folder of a request log.
        flags: such as `strategies=["remote", "lru:200"]`, or `search=True, memory="8M"`.

    """
    return _run_command("simulate", log, **flags)


def replay(log: Path, *, target: str, strategy: Path, **flags: Any) -> dict[str, Any]:
    """Make the requests of a log again under a strategy; return forecast, measured and error.

    Args:
        log: the folder of a request log.
        target: host:port or the path of a unix socket; several by comma share the keys.
        strategy: a file that `simulate` saved.
        flags: such as `fill=True`, `clients=4`, `html="replay.html"`.

    """
    return _run_command("replay", log, target=target, strategy=strategy, **flags)


def rollout(*stats: Path) -> dict[str, Any]:
    """Return how the requests that run a strategy compare with the others and with the forecast.

    Args:
        stats: files with what `client.report(json=True)` returned in each process.

    """
    return _run_command("rollout", *stats)


def generate(workload: str, *arguments: Path | int, **flags: Any) -> dict[str, Any]:
    """Write a workload: `generate("zipf", "keys.parquet", requests=100_000)`."""
    return _run_command(f"generate {workload}", *arguments, **flags)


def tour(folder: Path | None = None, **flags: Any) -> dict[str, Any]:
    """Return what storing a folder in a temporary server and reading it back costs."""
    return _run_command("tour", folder, **flags)


def why(**flags: Any) -> dict[str, Any]:
    """Return why gets of a server miss: `why(server="cache1:11211", for_s=10)`."""
    return _run_command("why", **flags)


def report(folder: Path, **flags: Any) -> dict[str, Any]:
    """Write the results in a folder as one page, and return what it lists."""
    return _run_command("report", folder, **flags)


def run(command: str, *arguments: Path | int | None, **flags: Any) -> Any:
    """Run any command of `glasscache` and return the result of its JSON.

    Args:
        command: its words, such as "curve" or "bench memory".
        arguments: those without a flag; None is left out.
        flags: see the module.

    Raises:
        LabError: the command failed; `result` has what it found before.
        FileNotFoundError: the command is not installed.

    """
    command_line = [find_command(), *command.split(), *_flag_arguments(flags), "--json"]
    positional_arguments = [
        os.fspath(argument) if not isinstance(argument, int) else str(argument)
        for argument in arguments
        if argument is not None
    ]
    if positional_arguments:
        command_line += ["--", *positional_arguments]
    environment = {"GLASSCACHE_PYTHON": sys.executable, **os.environ}
    process = subprocess.Popen(  # noqa: S603 - the command is our own
        command_line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    try:
        output, messages_bytes = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    messages_text = messages_bytes.decode(errors="replace")
    for line in messages_text.splitlines():
        if line.startswith("warning: "):
            warnings.warn(line.removeprefix("warning: "), stacklevel=4)
    return _parse_envelope(output, messages_text, process.returncode)


def _run_command(command: str, *arguments: Path | int | None, **flags: Any) -> dict[str, Any]:
    """Return the result of a command that gives an object."""
    result: dict[str, Any] = run(command, *arguments, **flags)
    return result


def _flag_arguments(flags: dict[str, Any]) -> Iterable[str]:
    """Yield keywords as flags of the command."""
    for name, value in flags.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            yield flag
        elif isinstance(value, (list, tuple)):
            parts: Iterable[Any] = cast("Any", value)
            yield f"{flag}={','.join(map(str, parts))}"
        else:
            yield f"{flag}={value}"


def _parse_envelope(output: bytes, messages: str, exit_code: int) -> Any:
    """Return the result of an envelope; raise its error."""
    try:
        envelope: dict[str, Any] = json.loads(output)
    except ValueError:
        raise LabError(
            messages.strip() or f"the command ended with {exit_code}", exit_code=exit_code
        ) from None
    if envelope["error"] is None and exit_code in {0, _EXIT_NEGATIVE_RESULT}:
        return envelope["result"]
    error: dict[str, Any] = envelope["error"] or {}
    raise LabError(
        error.get("message", messages.strip()),
        kind=error.get("kind", ""),
        exit_code=error.get("exit", exit_code),
        result=envelope["result"],
    )
