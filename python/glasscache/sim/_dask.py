"""Computations of the lab as tasks on a Dask cluster, with the results of a single process.

A trace or a log is read and checked here and sent as parts, each the result of a task of its own: the
scheduler makes it again wherever the worker that held it has died, as it repeats the computations, which are
functions of their arguments alone. A worker process joins the parts once and keeps what it made for the tasks
that follow (docs/decisions/lab.md, 0083).
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, NamedTuple

from glasscache import _native
from glasscache.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, Self, TypeAlias

    DataKind: TypeAlias = Literal["trace", "log"]

PART_BYTES = 4 << 20
"""Bytes of a part: below the 10 MB about which Dask warns, and large beside the cost of a task."""

UNPACKED_MAX = 2
"""Traces and logs that a worker process keeps."""


class Job(NamedTuple):
    """What all tasks of one computation share."""

    version: str
    """Of this package; replays of another version may differ."""
    kind: DataKind
    digest: str
    """Of all parts, under which a worker keeps what it made of them."""
    settings: tuple[Any, ...]
    """What `unpack` takes after the bytes."""


class Cluster:
    """A cluster that has a trace or a log."""

    def __init__(self, address: str, kind: DataKind, packed: bytes, *settings: Any) -> None:
        """Connect and send the parts.

        Raises:
            BadSetting: the package `distributed` is not installed.
            OSError: the scheduler cannot be reached.

        """
        try:
            import distributed  # noqa: PLC0415
        except ImportError:
            raise BadSetting(
                "dask= needs the package distributed: pip install 'glasscache[dask]'"
            ) from None
        hasher = hashlib.sha256(repr(settings).encode())
        hasher.update(packed)
        self._job = Job(_native.__version__, kind, hasher.hexdigest(), settings)
        connect: Any = distributed.Client  # which has no types
        self._client = connect(address, set_as_default=False)
        self._parts = [
            self._client.submit(bytes, packed[start : start + PART_BYTES], pure=False)
            for start in range(0, len(packed), PART_BYTES)
        ]

    def __enter__(self) -> Self:
        """Return the cluster."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release what the cluster holds and disconnect."""
        self._parts.clear()
        self._client.close()

    def run(self, method: str, argument_tuples: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the results of a method of the trace or log, one for each tuple of arguments."""
        futures = [
            self._client.submit(compute, self._job, method, arguments, *self._parts, pure=False)
            for arguments in argument_tuples
        ]
        results: list[Any] = self._client.gather(futures)
        return results


def compute(job: Job, method: str, arguments: tuple[Any, ...], *parts: bytes) -> Any:
    """Return one result; runs on a worker, in one thread of its own."""
    unpacked = _unpack_once(job, parts)
    if isinstance(unpacked, _native.Trace):
        policies, capacities, seed = arguments
        return unpacked.replay(policies, capacities, seed=seed, threads=1)
    if method == "simulate":
        strategies, draw_seed = arguments
        return unpacked.simulate(strategies, draw_seed=draw_seed, threads=1)
    memory, indices, in_hindsight = arguments
    return unpacked.search_added_ns(memory, indices, in_hindsight=in_hindsight, threads=1)


_unpacked_by_digest: dict[str, _native.Trace | _native.RequestLog] = {}
_unpacked_lock = threading.Lock()


def _unpack_once(job: Job, parts: tuple[bytes, ...]) -> _native.Trace | _native.RequestLog:
    """Return the trace or log of a job, made by the first task that needs it."""
    if job.version != _native.__version__:
        raise BadSetting(
            f"a Dask worker has glasscache {_native.__version__} and the caller {job.version}: "
            "install the same version"
        )
    with _unpacked_lock:
        if job.digest not in _unpacked_by_digest:
            packed = b"".join(parts)
            classes_by_kind: dict[DataKind, Any] = {
                "trace": _native.Trace,
                "log": _native.RequestLog,
            }
            unpacked = classes_by_kind[job.kind].unpack(packed, *job.settings)
            while len(_unpacked_by_digest) >= UNPACKED_MAX:
                del _unpacked_by_digest[next(iter(_unpacked_by_digest))]
            _unpacked_by_digest[job.digest] = unpacked
        return _unpacked_by_digest[job.digest]
