"""Decides whether the recorded operations on one key can be explained by one cache that may forget.

Each operation happened at one instant between its request and its reply; what was cut off happened at some
instant after its request, or never. The check searches an order of these instants in which a sequential cache
gives the recorded replies: linearizability per key (Herlihy and Wing 1990), by just-in-time linearization
(Lowe, "Testing for linearizability", 2017). A miss is possible in every state, for a cache may forget, and
leaves the key empty: a value that shows again after a miss, a delete or a flush has no order and is found.

The cost is bounded by `CONFIGURATIONS_MAX`; a history beyond it is counted as undecided, never as right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Value = int | bytes

# Configurations looked at for one reply; with six processes some dozens are usual.
CONFIGURATIONS_MAX = 20_000
# What a vivified item holds until its winner has stored a value.
VIVIFIED_VALUE = b""
NEVER = math.inf


class Operation(NamedTuple):
    """One recorded operation; `result` is "unknown" when no reply was read, and `end` is then `NEVER`."""

    start: float
    end: float
    verb: str
    result: str
    value: Value | None = None
    unique: int | None = None
    ttl_s: int = 0
    # Of a meta get: N, R, W, X and Z as they stood in the request and the reply.
    flags: str = ""
    # The value that `unique` is known to belong to, for a cas.
    owner: Value | None = None


class State(NamedTuple):
    """What the key holds; `unique` is `None` until it has been seen."""

    value: Value
    unique: int | None = None
    is_stale: bool = False
    is_leased: bool = False
    is_short: bool = False
    # The unique before an invalidation, which gives a new one.
    previous_unique: int | None = None


StateOrMissing = State | None


def with_known_unique(state: State, unique: int | None) -> StateOrMissing:
    """The state with its unique known, or `None` if it is another one."""
    if unique is None or state.unique == unique:
        return state
    if state.unique is not None or state.previous_unique == unique:
        return None
    return state._replace(unique=unique)


def stored_state(operation: Operation) -> State:
    """The state after a successful store."""
    assert operation.value is not None
    is_short = "S" in operation.flags
    return State(operation.value, operation.unique, is_short=is_short)


def successors(operation: Operation, state: StateOrMissing) -> Iterator[StateOrMissing]:
    """The states in which the key may be after the operation gave its result in this state."""
    match operation.result:
        case "miss":
            yield None
        case "refused":
            yield state
        case "unknown":
            yield from successors_of_unknown(operation, state)
        case "done":
            yield from successors_of_done(operation, state)
        case "exists" if state is not None:
            # add, replace of nothing, or a cas whose unique is not the present one.
            if operation.verb != "cas" or state.unique is None or state.unique != operation.unique:
                yield state


def vivified_state() -> State:
    """The state that a meta get with N leaves after a miss: an empty item with a lease."""
    return State(VIVIFIED_VALUE, is_leased=True)


def successors_of_done(operation: Operation, state: StateOrMissing) -> Iterator[StateOrMissing]:
    """The state after a success."""
    verb = operation.verb
    if verb in {"set", "add"}:
        # Before an add the cache may have forgotten what was there.
        yield stored_state(operation)
    elif verb == "flush":
        yield None
    elif verb == "lease":
        yield from successors_of_lease(operation, state)
    elif state is not None:
        yield from successors_of_change(operation, state)


def successors_of_change(  # noqa: C901 - a case for each command
    operation: Operation, state: State
) -> Iterator[StateOrMissing]:
    """The state after a success that only an item that is there allows."""
    match operation.verb:
        case "get" | "gat":
            if state.value == operation.value and (
                state_with_unique := with_known_unique(state, operation.unique)
            ):
                yield state_with_unique
        case "touch":
            yield state
        case "delete":
            yield None
        case "replace":
            yield stored_state(operation)
        case "cas":
            is_owner = operation.owner is None or operation.owner == state.value
            if is_owner and with_known_unique(state, operation.unique):
                yield State(operation.value or VIVIFIED_VALUE, is_short="S" in operation.flags)
        case "append":
            if isinstance(state.value, bytes) and isinstance(operation.value, bytes):
                yield State(state.value + operation.value)
        case "incr":
            if isinstance(state.value, int) and state.value + 1 == operation.value:
                yield State(state.value + 1)
        case "invalidate":
            # Sent with T600, so it is no longer nearly dead.
            yield State(state.value, is_stale=True, previous_unique=state.unique)


def successors_of_lease(operation: Operation, state: StateOrMissing) -> Iterator[StateOrMissing]:
    """The state after a meta get that may win: W, X and Z must be as the item's marks say."""
    flags = operation.flags
    is_winner, is_late = "W" in flags, "Z" in flags
    if state is None or operation.value == VIVIFIED_VALUE:
        # On a miss, also after forgetting what was there, N makes an item and its caller the winner.
        if (
            "N" in flags
            and operation.value == VIVIFIED_VALUE
            and is_winner
            and not is_late
            and "X" not in flags
        ):
            yield vivified_state()._replace(unique=operation.unique)
        if state is None:
            return
    state_with_unique = with_known_unique(state, operation.unique)
    if (
        state.value != operation.value
        or state_with_unique is None
        or ("X" in flags) != state.is_stale
    ):
        return
    may_win = state.is_stale or ("R" in flags and state.is_short)
    if is_late == state.is_leased and is_winner == (may_win and not state.is_leased):
        yield state_with_unique._replace(is_leased=state.is_leased or is_winner)


def successors_of_unknown(operation: Operation, state: StateOrMissing) -> Iterator[StateOrMissing]:
    """The states after an operation whose reply was not read."""
    verb = operation.verb
    if verb in {"set", "add"}:
        yield stored_state(operation)
    elif verb == "lease":
        if "N" in operation.flags:
            yield vivified_state()
        if (
            state
            and not state.is_leased
            and (state.is_stale or ("R" in operation.flags and state.is_short))
        ):
            yield state._replace(is_leased=True)
    elif state is None:
        return
    elif verb == "incr" and isinstance(state.value, int):
        yield State(state.value + 1)
    elif verb != "incr":
        yield from successors_of_change(operation, state)


# What was cut off and changes nothing that a later reply could show, other than by forgetting.
VERBS_WITHOUT_EFFECT = {"get", "gat", "touch", "delete", "flush"}


@dataclass
class CheckResult:
    """The result of checking one history: a violation, or that it was too expensive to decide."""

    violation: str = ""
    is_undecided: bool = False
    configuration_count: int = 0


class Search:
    """The configurations reached so far: which running operations have happened, and the state they left."""

    def __init__(self) -> None:
        self.running_operations: dict[int, Operation] = {}
        self.configurations: set[tuple[int, StateOrMissing]] = {(0, None)}
        self.configuration_count = 0

    def begin_operation(self, operation: Operation) -> int:
        """Adds a running operation; returns its index."""
        index = next(
            index
            for index in range(len(self.running_operations) + 1)
            if index not in self.running_operations
        )
        self.running_operations[index] = operation
        return index

    def end_operation(self, index: int) -> bool:
        """Keeps the configurations in which this operation has happened; false if too expensive."""
        bit = 1 << index
        kept_configurations: set[tuple[int, StateOrMissing]] = set()
        seen_configurations = set(self.configurations)
        stack = list(self.configurations)
        while stack:
            happened_bits, state = stack.pop()
            if happened_bits & bit:
                kept_configurations.add((happened_bits & ~bit, state))
                continue
            for other_index, operation in self.running_operations.items():
                if happened_bits >> other_index & 1:
                    continue
                for successor in successors(operation, state):
                    configuration = (happened_bits | 1 << other_index, successor)
                    if configuration not in seen_configurations:
                        seen_configurations.add(configuration)
                        stack.append(configuration)
            if len(seen_configurations) > CONFIGURATIONS_MAX:
                return False
        self.configuration_count += len(seen_configurations)
        del self.running_operations[index]
        self.configurations = kept_configurations
        return True


def check_history(operations: Iterable[Operation]) -> CheckResult:
    """Whether one cache that may forget explains these operations on one key, empty at first."""
    events: list[tuple[float, int, int, Operation]] = []
    operations = list(operations)
    value_by_unique = first_values_by_unique(operations)
    for number, recorded in enumerate(operations):
        operation = recorded
        if recorded.verb == "cas":
            operation = recorded._replace(owner=value_by_unique.get(recorded.unique))
        if operation.result == "unknown" and operation.verb in VERBS_WITHOUT_EFFECT:
            continue
        events.append((operation.start, 0, number, operation))
        if operation.end != NEVER:
            events.append((operation.end, 1, number, operation))
    events.sort(key=lambda event: event[:3])
    search = Search()
    indices: dict[int, int] = {}
    for _, is_end, number, operation in events:
        if not is_end:
            indices[number] = search.begin_operation(operation)
        elif not search.end_operation(indices[number]):
            return CheckResult(is_undecided=True, configuration_count=search.configuration_count)
        elif not search.configurations:
            return CheckResult(
                f"{describe(operation)} fits no order",
                configuration_count=search.configuration_count,
            )
    return CheckResult(configuration_count=search.configuration_count)


def describe(operation: Operation) -> str:
    """A description of an operation for messages."""
    value = operation.value
    value_text = f"{value[-24:]!r}" if isinstance(value, bytes) else f"{value}"
    parts = [operation.verb, operation.result, value_text]
    if operation.unique is not None:
        parts.append(f"unique {operation.unique}")
    if operation.flags:
        parts.append(f"flags {operation.flags}")
    return f"{' '.join(parts)} from {operation.start:.6f} to {operation.end:.6f}"


def first_values_by_unique(operations: Iterable[Operation]) -> dict[int | None, Value]:
    """The first value with which each unique was seen."""
    value_by_unique: dict[int | None, Value] = {}
    for operation in operations:
        if has_unique(operation) and operation.value is not None:
            value_by_unique.setdefault(operation.unique, operation.value)
    return value_by_unique


def has_unique(operation: Operation) -> bool:
    """Whether the reply has the unique of a value."""
    is_reported = operation.unique is not None and operation.result == "done"
    return is_reported and operation.verb in {"get", "set", "lease"}


def find_reused_unique(operations: Iterable[Operation]) -> str:
    """A unique that two different values of the key had, or an empty text."""
    operations = list(operations)
    value_by_unique = first_values_by_unique(operations)
    for operation in operations:
        owner = value_by_unique.get(operation.unique)
        if has_unique(operation) and owner != operation.value:
            return f"unique {operation.unique} belongs to {owner!r} and to {operation.value!r}"
    return ""


def find_expired_hit(operations: list[Operation], tolerance_s: float) -> str:
    """A hit that began after the latest expiry that a store or touch before it could have set, or nothing.

    For keys whose every store and touch has a TTL. A touch counts for all values, so the rule never errs.
    """
    writers = [
        operation
        for operation in operations
        if operation.verb in {"set", "add", "replace", "cas", "touch", "gat"}
    ]
    for read in operations:
        if read.result != "done" or read.verb not in {"get", "gat", "touch", "replace"}:
            continue
        latest_expiry = max(
            (
                writer.end + writer.ttl_s
                for writer in writers
                if writer is not read
                and writer.start < read.end
                and writer.result in {"done", "unknown"}
            ),
            default=-NEVER,
        )
        if read.start > latest_expiry + tolerance_s:
            return (
                f"{describe(read)} came {read.start - latest_expiry:.2f} s after the latest expiry"
            )
    return ""
