"""Operations on keys whose values name their version: it must be between the shared versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from session import Killed, Session

if TYPE_CHECKING:
    from session import Plan
    from shared_versions import SharedVersions


class VersionedKeys(Session):
    """Writes own keys, reads everybody's."""

    def __init__(self, plan: Plan, process_number: int, shared_versions: SharedVersions) -> None:
        super().__init__(plan, process_number, shared_versions)
        self.own_key_indices = [
            key_index
            for key_index in range(plan.key_count)
            if key_index % plan.process_count == process_number
        ]
        self.deleted_indices: set[int] = set()

    def pick_value_bytes(self) -> int:
        """Mostly small, some medium, few large."""
        chance = self.rng.random()
        if chance < 0.004:
            return self.rng.randint(20_000, self.plan.large_bytes)
        if chance < 0.1:
            return self.rng.randint(500, 20_000)
        return self.rng.randint(0, 300)

    def check_version(
        self, key_index: int, generation: int, oldest_valid_version: int, value: bytes | None
    ) -> None:
        """Compares a read value, or a miss, with the shared versions."""
        key = self.shared_versions.key(key_index, generation)
        if value is None:
            if (
                key_index in self.own_key_indices
                and oldest_valid_version
                and key_index not in self.deleted_indices
                and generation == self.shared_versions.current_generation(key_index)
            ):
                self.report.lost_items += 1
            return
        version = self.checked_values.read_version(key, value)
        newest_valid_version = self.shared_versions.newest_valid_version(key_index, generation)
        if version is None:
            self.record_violation(
                f"{key!r} holds another value: {value[:60]!r}, {len(value)} bytes"
            )
        elif not oldest_valid_version <= version <= newest_valid_version:
            self.record_violation(
                f"{key!r} has version {version}, must be {oldest_valid_version} to {newest_valid_version}"
            )

    def write(self) -> None:
        """set, meta set, replace or add of a key of this process."""
        key_index = self.rng.choice(self.own_key_indices)
        key = self.shared_versions.key(
            key_index, self.shared_versions.current_generation(key_index)
        )
        version = self.shared_versions.begin(key_index)
        value = self.checked_values.make(key, version, self.pick_value_bytes())
        command_choice = self.rng.random()
        flags = version & 0xFFFF
        if command_choice < 0.6:
            request, success_reply = (
                b"set %s %d 0 %d\r\n%s\r\n" % (key, flags, len(value), value),
                b"STORED",
            )
        else:
            request, success_reply = (
                b"ms %s %d F%d\r\n%s\r\n" % (key, len(value), flags, value),
                b"HD",
            )
        try:
            reply = self.send_request(request)
        except (Killed, OSError):
            self.shared_versions.begin_next_generation(key_index)
            self.deleted_indices.discard(key_index)
            raise
        if reply == success_reply:
            self.shared_versions.acknowledge(key_index)
            self.deleted_indices.discard(key_index)
        elif reply.startswith(b"SERVER_ERROR"):
            # Refused: the old value is gone or stays; its outcome is unknown.
            self.report.refused_writes += 1
            self.shared_versions.begin_next_generation(key_index)
        else:
            self.record_violation(f"set of {key!r}: reply {reply[:60]!r}")
            self.shared_versions.begin_next_generation(key_index)

    def delete(self) -> None:
        """delete or md; older versions must not be read again."""
        key_index = self.rng.choice(self.own_key_indices)
        key = self.shared_versions.key(
            key_index, self.shared_versions.current_generation(key_index)
        )
        self.shared_versions.begin(key_index)
        is_meta = self.rng.random() < 0.5
        try:
            reply = self.send_request((b"md %s\r\n" if is_meta else b"delete %s\r\n") % key)
        except (Killed, OSError):
            self.shared_versions.begin_next_generation(key_index)
            self.deleted_indices.discard(key_index)
            raise
        if reply not in (b"DELETED", b"NOT_FOUND", b"HD", b"NF"):
            self.record_violation(f"delete of {key!r}: reply {reply[:60]!r}")
        self.deleted_indices.add(key_index)
        self.shared_versions.acknowledge(key_index)

    def touch(self) -> None:
        """touch changes no value."""
        key_index = self.rng.choice(self.own_key_indices)
        key = self.shared_versions.key(
            key_index, self.shared_versions.current_generation(key_index)
        )
        reply = self.send_request(b"touch %s 0\r\n" % key)
        if reply not in (b"TOUCHED", b"NOT_FOUND"):
            self.record_violation(f"touch of {key!r}: reply {reply[:60]!r}")

    def read(self) -> None:
        """get, gets or gat of any key."""
        key_index = self.rng.randrange(self.plan.key_count)
        generation = self.shared_versions.current_generation(key_index)
        oldest_valid_version = self.shared_versions.oldest_valid_version(key_index, generation)
        key = self.shared_versions.key(key_index, generation)
        command_format = self.rng.choice([b"get %s\r\n", b"gets %s\r\n", b"gat 0 %s\r\n"])
        values = self.read_values_until_end(self.send_request(command_format % key))
        if len(values) > 1 or (values and values[0].key != key):
            self.record_violation(
                f"a get of {key!r} returned {[reply_key for reply_key, _ in values]}"
            )
            return
        self.check_version(
            key_index, generation, oldest_valid_version, values[0].value if values else None
        )

    def read_many(self) -> None:
        """One get of many keys: each requested, none twice, in order."""
        key_count = self.rng.randint(2, 60)
        key_indices = self.rng.sample(range(self.plan.key_count), key_count)
        expectations = []
        for key_index in key_indices:
            generation = self.shared_versions.current_generation(key_index)
            expectations.append(
                (
                    key_index,
                    generation,
                    self.shared_versions.oldest_valid_version(key_index, generation),
                )
            )
        keys = [
            self.shared_versions.key(key_index, generation)
            for key_index, generation, _ in expectations
        ]
        found_values = self.read_values_until_end(
            self.send_request(b"get %s\r\n" % b" ".join(keys))
        )
        positions = [
            keys.index(reply_key) if reply_key in keys else -1 for reply_key, _ in found_values
        ]
        if -1 in positions or positions != sorted(set(positions)):
            self.record_violation(f"a multi-get of {key_count} keys returned keys at {positions}")
            return
        values = dict(found_values)
        for (key_index, generation, oldest_valid_version), key in zip(
            expectations, keys, strict=True
        ):
            self.check_version(key_index, generation, oldest_valid_version, values.get(key))

    def read_meta(self) -> None:
        """Pipelined mg with opaque and key; the opaque names the request."""
        key_indices = self.rng.sample(range(self.plan.key_count), self.rng.randint(1, 12))
        expectations = {}
        request = b""
        for key_index in key_indices:
            generation = self.shared_versions.current_generation(key_index)
            self.serial += 1
            opaque = b"o%d" % self.serial
            expectations[opaque] = (
                key_index,
                generation,
                self.shared_versions.oldest_valid_version(key_index, generation),
            )
            request += b"mg %s v k O%s\r\n" % (
                self.shared_versions.key(key_index, generation),
                opaque,
            )
        line = self.send_request(request + b"mn\r\n")
        pending_opaques = list(expectations)
        while line != b"MN":
            parts = line.split()
            value = self.connection.read_value(int(parts[1])) if parts[0] == b"VA" else None
            if parts[0] not in (b"VA", b"EN", b"HD"):
                raise ValueError(f"mg: reply {line[:60]!r}")
            expected_opaque = pending_opaques.pop(0)
            if value is not None:
                opaque = next((part[1:] for part in parts[2:] if part[:1] == b"O"), b"")
                reply_key = next((part[1:] for part in parts[2:] if part[:1] == b"k"), b"")
                key_index, generation, oldest_valid_version = expectations[expected_opaque]
                if opaque != expected_opaque or reply_key != self.shared_versions.key(
                    key_index, generation
                ):
                    self.record_violation(f"mg {expected_opaque!r}: reply {line[:80]!r}")
                else:
                    self.check_version(key_index, generation, oldest_valid_version, value)
            else:
                self.check_version(*expectations[expected_opaque], None)
            line = self.connection.read_line()
        if pending_opaques:
            self.record_violation(f"{len(pending_opaques)} meta requests without a reply")
