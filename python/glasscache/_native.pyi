"""The types of the native module; `mypy.stubtest` holds them against it."""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Self, TypeAlias, TypeVar, final, overload

from typing_extensions import Buffer, disjoint_base

from glasscache._near import NearStats
from glasscache._types import Keys, KeysOf, Ttl
from glasscache.errors import GlasscacheError

_Key: TypeAlias = str | bytes
_K = TypeVar("_K", bound=_Key)
_T = TypeVar("_T")
_Inspected: TypeAlias = tuple[
    Any, int | None, int | None, int | None, bool | None, bool, int, tuple[float, float] | None
]

__all__ = [
    "PARTS",
    "AsyncClient",
    "BulkCall",
    "Client",
    "ClientState",
    "Codec",
    "ComputedValue",
    "Connection",
    "Curve",
    "DelayedCall",
    "Manifest",
    "PendingNearRead",
    "RecordedRequest",
    "Recorder",
    "RequestBlock",
    "RequestLog",
    "RequestScope",
    "Strategy",
    "Trace",
    "__version__",
    "check_parent",
    "server_of",
    "slab_classes",
    "slab_optimum",
    "slab_plan",
]

PARTS: list[str]
__version__: str

_SlabSettings: TypeAlias = tuple[float, int, int, int, list[int] | None]

def slab_classes(settings: _SlabSettings) -> list[int]: ...
def slab_optimum(
    sizes: Buffer,
    counts: Buffer | None,
    *,
    settings: _SlabSettings,
    key_bytes: int,
    classes: int,
) -> list[int]: ...
def slab_plan(
    sizes: Buffer,
    counts: Buffer | None,
    *,
    settings: _SlabSettings,
    key_bytes: int,
    memory_bytes: int,
) -> tuple[list[int], int, float, int, int, int | None]: ...

@final
class RequestLog:
    @staticmethod
    def read(folder: str, *, latency: str, exclude: list[str]) -> RequestLog: ...
    @staticmethod
    def unpack(packed_log: bytes, latency_json: str, exclude: list[str]) -> RequestLog: ...
    def packed(self) -> bytes: ...
    @property
    def latency_json(self) -> str: ...
    @property
    def left_out_parts(self) -> list[str]: ...
    def check(self, strategies: list[str], draw_seed: int | None) -> None: ...
    def simulate(
        self, strategies: list[str], *, draw_seed: int | None, threads: int
    ) -> list[str]: ...
    def search_candidates(self, memory_bytes: int) -> int: ...
    def search_added_ns(
        self, memory_bytes: int, indices: list[int], *, in_hindsight: bool, threads: int
    ) -> list[int]: ...
    def search_front(
        self, memory_bytes: int, added_ns: list[int]
    ) -> list[tuple[int, int, str]]: ...
    def search_bounds(
        self, memory_bytes: int, added_ns: list[int], memories: list[int]
    ) -> list[int | None]: ...

@final
class Trace:
    @staticmethod
    def read(path: str, mode: str) -> Trace: ...
    @staticmethod
    def of_arrays(keys: Buffer, sizes: Buffer | None) -> Trace: ...
    @staticmethod
    def unpack(packed: bytes) -> Trace: ...
    def packed(self) -> bytes: ...
    @staticmethod
    def check(policies: list[str]) -> None: ...
    @property
    def requests(self) -> int: ...
    @property
    def distinct(self) -> int: ...
    @property
    def footprint(self) -> int: ...
    @property
    def mode(self) -> str: ...
    @property
    def without_size(self) -> int: ...
    @property
    def is_cut(self) -> bool: ...
    def replay(
        self, policies: list[str], capacities: list[int], *, seed: int, threads: int
    ) -> list[tuple[str, int, int, int, float, float | None]]: ...
    def lru(self, *, sample: int | None, seeds: list[int], threads: int) -> Curve: ...

@final
class Curve:
    def band(self, size: int) -> tuple[float, float, float]: ...
    def size_for(self, miss_ratio: float) -> int | None: ...
    def knee(self) -> int | None: ...
    def sizes(self, count: int) -> list[int]: ...

def check_parent(parent: Any) -> None: ...
def server_of(placement: str, servers: list[str], keys: list[bytes]) -> list[int]: ...

@disjoint_base
class Codec:
    def __new__(
        cls,
        dump: Callable[[Any], tuple[str, Any]],
        load: Callable[[str, Any], Any],
        *,
        dialect: str,
        compress: str | None,
        level: int | None,
        threshold: int,
        min_saving: int,
        decompressed_bytes_max: int,
        pickle: bool,
        migrate_from: str | None,
        kind_and_payload_of: Callable[[Any, bool], tuple[str, Any]] | None = None,
    ) -> Self: ...
    def encode(self, value: Any) -> tuple[int, bytes]: ...
    def decode(self, flags: int, body: bytes) -> Any: ...
    def encoding_costs(self, value: Any) -> tuple[float, float, int, int]: ...

@final
class ClientState:
    def __new__(
        cls,
        servers: list[str],
        codec: Codec,
        *,
        timeout: float,
        placement: str,
        namespace: bytes,
        counts_as_miss: Callable[[Any], bool] | None,
        value_bytes_max: int,
        connections_max: int,
        base64_keys: bool,
        binary: bool,
        login: tuple[bytes, bytes | Callable[[], str | bytes]] | None,
        tls: tuple[str | None, str | None, str | None, str | None] | None,
        costs: bool,
        strategy: Strategy | None,
    ) -> Self: ...
    @property
    def codec(self) -> Codec: ...
    @property
    def value_bytes_max(self) -> int: ...
    def counters(self) -> dict[str, Any]: ...
    def miss_or_raise(self, error: GlasscacheError, miss: _T) -> _T: ...
    def count_unstored(self) -> None: ...
    def count_incomplete(self) -> None: ...
    def encode(self, value: Any) -> tuple[int, bytes]: ...
    def server_of(self, key: _Key) -> str: ...
    def reservation_form(self, token: bytes = ...) -> tuple[int, bytes] | None: ...
    def rollout_json(self) -> str | None: ...
    def begin_request(self, page: _Key | None) -> RequestScope | None: ...
    def forget_near(self, key: _Key) -> None: ...
    def near_stats(self) -> NearStats | None: ...

@disjoint_base
class Client:
    def __new__(cls, state: ClientState) -> Self: ...
    @overload
    def get(
        self,
        key: _Key,
        default: None = None,
        *,
        deadline: float | None = None,
        parent: _Key | None = None,
    ) -> Any: ...
    @overload
    def get(
        self,
        key: _Key,
        default: _T,
        *,
        deadline: float | None = None,
        parent: _Key | None = None,
    ) -> Any | _T: ...
    def _record_gets(
        self,
        recorder: Recorder,
        begin: Callable[[RecordedRequest, list[_Key], Any], bool] | None,
    ) -> None: ...
    def gets(self, key: _Key, *, deadline: float | None = None) -> tuple[Any, int] | None: ...
    @overload
    def gat(
        self, key: _Key, ttl: Ttl, default: None = None, *, deadline: float | None = None
    ) -> Any: ...
    @overload
    def gat(
        self, key: _Key, ttl: Ttl, default: _T, *, deadline: float | None = None
    ) -> Any | _T: ...
    def set(
        self,
        key: _Key,
        value: Any,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        split: bool = False,
        deadline: float | None = None,
    ) -> bool: ...
    def add(
        self,
        key: _Key,
        value: Any,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
    ) -> bool: ...
    def replace(
        self,
        key: _Key,
        value: Any,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
    ) -> bool: ...
    def append(
        self, key: _Key, value: _Key, *, noreply: bool = False, deadline: float | None = None
    ) -> bool: ...
    def prepend(
        self, key: _Key, value: _Key, *, noreply: bool = False, deadline: float | None = None
    ) -> bool: ...
    def cas(
        self,
        key: _Key,
        value: Any,
        cas: int,
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
    ) -> bool | None: ...
    def delete(
        self, key: _Key, *, noreply: bool = False, deadline: float | None = None
    ) -> bool: ...
    def touch(
        self, key: _Key, ttl: Ttl, *, noreply: bool = False, deadline: float | None = None
    ) -> bool: ...
    def incr(
        self,
        key: _Key,
        delta: int = 1,
        *,
        initial: int | None = None,
        ttl: Ttl | None = None,
        noreply: bool = False,
        deadline: float | None = None,
    ) -> int | None: ...
    def decr(
        self,
        key: _Key,
        delta: int = 1,
        *,
        initial: int | None = None,
        ttl: Ttl | None = None,
        noreply: bool = False,
        deadline: float | None = None,
    ) -> int | None: ...
    def _inspect(self, key: _Key, *, deadline: float | None = None) -> _Inspected | None: ...
    def get_many(
        self, keys: KeysOf[_K], *, deadline: float | None = None, parent: _Key | None = None
    ) -> dict[_K, Any]: ...
    def gets_many(
        self, keys: KeysOf[_K], *, deadline: float | None = None
    ) -> dict[_K, tuple[Any, int]]: ...
    def set_many(
        self,
        values: Mapping[Any, Any],
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
    ) -> dict[Any, GlasscacheError]: ...
    def delete_many(
        self, keys: Keys, *, noreply: bool = False, deadline: float | None = None
    ) -> dict[Any, GlasscacheError]: ...
    def _run_pipeline(
        self,
        calls: list[tuple[str, _Key, Any, Ttl | None, int]],
        *,
        deadline: float | None = None,
    ) -> list[Any]: ...
    def server_stats(
        self, argument: str = "", *, deadline: float | None = None
    ) -> dict[str, Any]: ...
    def version(self, *, deadline: float | None = None) -> dict[str, Any]: ...
    def flush(self, delay: int = 0, *, deadline: float | None = None) -> dict[str, Any]: ...
    def clear(self, *, deadline: float | None = None) -> dict[str, Any]: ...
    def _reserve(
        self,
        key: _Key,
        token: bytes,
        ttl: float,
        instead_of: int | None = None,
        *,
        deadline: float | None = None,
    ) -> bool | None: ...
    def _reservation(
        self, key: _Key, *, deadline: float | None = None
    ) -> tuple[bytes, int, int | None] | None: ...
    def _change_servers(self, servers: list[str]) -> None: ...
    def _open_deadline(self, block_seconds: float) -> None: ...
    def _close_deadline(self) -> None: ...
    def send_gathered(self, *, deadline: float | None = None) -> None: ...
    def close(self) -> None: ...

@final
class ComputedValue:
    def __new__(cls, value: Any, made_at: float, cost: float) -> Self: ...
    @property
    def value(self) -> Any: ...

@final
class Manifest:
    def __new__(cls, body: bytes) -> Self: ...
    @property
    def body(self) -> bytes: ...

@final
class Connection:
    @property
    def is_usable(self) -> bool: ...
    @property
    def must_wait_to_write(self) -> bool: ...
    def resumed(self) -> asyncio.Future[None]: ...
    @property
    def is_idle(self) -> bool: ...
    def connection_made(self, transport: Any) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    @staticmethod
    def eof_received() -> bool: ...
    def connection_lost(self, error: Any) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def flush(self) -> None: ...
    def check_deadlines(self) -> None: ...
    def close(self) -> None: ...

@disjoint_base
class AsyncClient:
    def __new__(cls, state: ClientState) -> Self: ...
    @property
    def _names(self) -> dict[int, str]: ...
    @property
    def _slots_count(self) -> int: ...
    def _address_of(self, slot: int) -> tuple[str, int | None]: ...
    def _change_servers(self, servers: list[str]) -> dict[int, Connection | None]: ...
    def _new_connection(
        self, slot: int, ready_future: asyncio.Future[None], presumes_classic: bool
    ) -> Connection: ...
    def _use_connection(self, slot: int, connection: Connection | None) -> Connection | None: ...
    def _connection_of(self, slot: int) -> Connection | None: ...
    def _slot_of(self, key: _Key) -> int: ...
    def _mark_closed(self) -> None: ...
    def _is_down(self, slot: int) -> bool: ...
    def _mark_unreachable(self, slot: int, timeout_s: float | None) -> None: ...
    def _probe_of(self, slot: int) -> tuple[float, float, bytes, bytes]: ...
    def _mark_up(self, slot: int) -> None: ...
    def _unreachable_exception(self, slot: int, reason: str) -> GlasscacheError: ...
    def _connect_timeout_exception(self, slot: int) -> GlasscacheError: ...
    def _begin_attempt(self, delayed: DelayedCall, key: _Key) -> int: ...
    def _start_reserve(
        self,
        key: _Key,
        flags: int,
        body: bytes,
        ttl: float,
        instead_of: int | None,
        deadline: _TimeLimit,
    ) -> asyncio.Future[bool | None] | None: ...
    def _start_reservation(
        self, key: _Key, deadline: _TimeLimit
    ) -> asyncio.Future[tuple[bytes, int, int | None] | None] | None: ...
    @property
    def _connection_counts(self) -> dict[str, int]: ...
    def _start_get(
        self, key: _Key, default: Any, deadline: _TimeLimit
    ) -> asyncio.Future[Any] | None: ...
    def _near_hit(self, key: _Key) -> tuple[Any] | None: ...
    def _begin_near(self, keys: Any, deadline: _TimeLimit) -> PendingNearRead: ...
    def _next_step(
        self, pending_read: PendingNearRead
    ) -> BulkCall | asyncio.Future[None] | None: ...
    def _near_values(self, pending_read: PendingNearRead) -> tuple[dict[Any, Any], bool]: ...
    def _start_gets(
        self, key: _Key, deadline: _TimeLimit
    ) -> asyncio.Future[tuple[Any, int] | None] | None: ...
    def _start_gat(
        self, key: _Key, ttl: Ttl, default: Any, deadline: _TimeLimit
    ) -> asyncio.Future[Any] | None: ...
    def _start_inspect(
        self, key: _Key, deadline: _TimeLimit
    ) -> asyncio.Future[tuple[Any, ...] | None] | None: ...
    def _start_store(
        self,
        key: _Key,
        mode: str,
        value: Any,
        ttl: Ttl | None,
        noreply: bool,
        cas: int | None,
        deadline: _TimeLimit,
    ) -> asyncio.Future[Any] | None: ...
    def _start_delete(
        self, key: _Key, noreply: bool, deadline: _TimeLimit
    ) -> asyncio.Future[bool] | None: ...
    def _start_touch(
        self, key: _Key, ttl: Ttl, noreply: bool, deadline: _TimeLimit
    ) -> asyncio.Future[bool] | None: ...
    def _start_arithmetic(
        self,
        key: _Key,
        delta: int,
        is_decrement: bool,
        initial: int | None,
        ttl: Ttl | None,
        noreply: bool,
        deadline: _TimeLimit,
    ) -> asyncio.Future[int | None] | None: ...
    def _send(self, call: BulkCall) -> None: ...
    def _fail(self, call: BulkCall, slot: int, exception: GlasscacheError) -> None: ...
    def _start_get_many(self, keys: Keys, with_cas: bool, deadline: _TimeLimit) -> BulkCall: ...
    def _start_set_many(
        self, values: Mapping[Any, Any], ttl: Ttl | None, deadline: _TimeLimit
    ) -> BulkCall: ...
    def _start_delete_many(self, keys: Keys, deadline: _TimeLimit) -> BulkCall: ...
    def _start_of_all(
        self, command: str, argument: str, delay: int, deadline: _TimeLimit
    ) -> BulkCall: ...

@final
class DelayedCall:
    def __new__(cls, seconds: float, is_retry: bool) -> Self: ...
    @property
    def seconds_left(self) -> float: ...
    def mark_stale(self) -> None: ...

_TimeLimit: TypeAlias = float | DelayedCall | None

@final
class PendingNearRead:
    @property
    def seconds_left(self) -> float: ...
    def abandon(self) -> None: ...

@final
class RequestScope:
    def end(self) -> None: ...

@final
class Strategy:
    def __new__(
        cls,
        path: str | os.PathLike[str],
        *,
        near_ttl: float | None,
        coherent: bool,
        children_of: Callable[[Any], list[bytes]] | None,
        scopes: ContextVar[RequestScope | None],
        share: float | None,
        share_by: str,
    ) -> Self: ...

@final
class BulkCall:
    @property
    def seconds_left(self) -> float: ...
    @property
    def has_manifests(self) -> bool: ...
    def wait(self) -> asyncio.Future[dict[Any, Any] | None]: ...
    def abandon(self) -> None: ...
    def slots(self) -> set[int]: ...

@final
class Recorder:
    def __new__(
        cls,
        folder: str | os.PathLike[str],
        *,
        sample: float,
        format: str,
        salt: bytes | None,
        parents: list[str],
        rotate_seconds: float,
        rotate_bytes: int,
        memory_bytes: int,
        current_request: ContextVar[RecordedRequest | None],
        blocks: list[None],
    ) -> Self: ...
    def request(self, page: _Key | None = None, route: str | None = None) -> RequestBlock: ...
    def stats(self) -> dict[str, int]: ...
    def close(self) -> bool: ...

@final
class RequestBlock:
    def __enter__(self) -> None: ...
    def __exit__(self, *_error: object) -> None: ...

@final
class RecordedRequest:
    @property
    def number(self) -> int: ...
    def set_page(self, key: _Key) -> None: ...
    def set_route(self, route: str) -> None: ...
    def begin(
        self, keys: list[Any], parents: list[_Key | None], is_named: bool = False
    ) -> None: ...
    def begin_write(self) -> None: ...
    def end(self) -> None: ...
    def finish(self) -> None: ...
