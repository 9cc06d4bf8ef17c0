"""Operations on keys whose values name their version: it must be between the shared versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from session import Killed, Session

if TYPE_CHECKING:
    from session import Plan
    from shared_versions import SharedVersions


class VersionedKeys(Session):
    """Writes own keys, reads everybody's."""

    def __init__(self, plan: Plan, number: int, shared_versions: SharedVersions) -> None:
        super().__init__(plan, number, shared_versions)
        self.own_keys = [index for index in range(plan.keys) if index % plan.processes == number]
        self.deleted: set[int] = set()

    def size(self) -> int:
        """Mostly small, some medium, few large."""
        chance = self.random.random()
        if chance < 0.004:
            return self.random.randint(20_000, self.plan.large_bytes)
        if chance < 0.1:
            return self.random.randint(500, 20_000)
        return self.random.randint(0, 300)

    def check_version(
        self, index: int, generation: int, oldest_valid_version: int, value: bytes | None
    ) -> None:
        """Compares a read value, or a miss, with the shared versions."""
        name = self.shared_versions.name(index, generation)
        if value is None:
            if (
                index in self.own_keys
                and oldest_valid_version
                and index not in self.deleted
                and generation == self.shared_versions.generation(index)
            ):
                self.report.lost += 1
            return
        version = self.values.read(name, value)
        newest_valid_version = self.shared_versions.newest_valid_version(index, generation)
        if version is None:
            self.violation(f"{name!r} holds another value: {value[:60]!r}, {len(value)} bytes")
        elif not oldest_valid_version <= version <= newest_valid_version:
            self.violation(
                f"{name!r} has version {version}, must be {oldest_valid_version} to {newest_valid_version}"
            )

    def write(self) -> None:
        """set, meta set, replace or add of a key of this process."""
        index = self.random.choice(self.own_keys)
        name = self.shared_versions.name(index, self.shared_versions.generation(index))
        version = self.shared_versions.begin(index)
        value = self.values.make(name, version, self.size())
        form = self.random.random()
        flags = version & 0xFFFF
        if form < 0.6:
            request, success = (
                b"set %s %d 0 %d\r\n%s\r\n" % (name, flags, len(value), value),
                b"STORED",
            )
        else:
            request, success = b"ms %s %d F%d\r\n%s\r\n" % (name, len(value), flags, value), b"HD"
        try:
            reply = self.send_request(request)
        except (Killed, OSError):
            self.shared_versions.next_generation(index)
            self.deleted.discard(index)
            raise
        if reply == success:
            self.shared_versions.acknowledge(index)
            self.deleted.discard(index)
        elif reply.startswith(b"SERVER_ERROR"):
            # Refused: the old value is gone or stays; its outcome is unknown.
            self.report.refused += 1
            self.shared_versions.next_generation(index)
        else:
            self.violation(f"set of {name!r}: reply {reply[:60]!r}")
            self.shared_versions.next_generation(index)

    def delete(self) -> None:
        """delete or md; older versions must not be read again."""
        index = self.random.choice(self.own_keys)
        name = self.shared_versions.name(index, self.shared_versions.generation(index))
        self.shared_versions.begin(index)
        meta = self.random.random() < 0.5
        try:
            reply = self.send_request((b"md %s\r\n" if meta else b"delete %s\r\n") % name)
        except (Killed, OSError):
            self.shared_versions.next_generation(index)
            self.deleted.discard(index)
            raise
        if reply not in (b"DELETED", b"NOT_FOUND", b"HD", b"NF"):
            self.violation(f"delete of {name!r}: reply {reply[:60]!r}")
        self.deleted.add(index)
        self.shared_versions.acknowledge(index)

    def touch(self) -> None:
        """touch changes no value."""
        index = self.random.choice(self.own_keys)
        name = self.shared_versions.name(index, self.shared_versions.generation(index))
        reply = self.send_request(b"touch %s 0\r\n" % name)
        if reply not in (b"TOUCHED", b"NOT_FOUND"):
            self.violation(f"touch of {name!r}: reply {reply[:60]!r}")

    def read(self) -> None:
        """get, gets or gat of any key."""
        index = self.random.randrange(self.plan.keys)
        generation = self.shared_versions.generation(index)
        oldest_valid_version = self.shared_versions.oldest_valid_version(index, generation)
        name = self.shared_versions.name(index, generation)
        form = self.random.choice([b"get %s\r\n", b"gets %s\r\n", b"gat 0 %s\r\n"])
        values = self.values_until_end(self.send_request(form % name))
        if len(values) > 1 or (values and values[0][0] != name):
            self.violation(f"a get of {name!r} returned {[key for key, _ in values]}")
            return
        self.check_version(
            index, generation, oldest_valid_version, values[0][1] if values else None
        )

    def read_many(self) -> None:
        """One get of many keys: each requested, none twice, in order."""
        count = self.random.randint(2, 60)
        indexes = self.random.sample(range(self.plan.keys), count)
        names_of_request = []
        for index in indexes:
            generation = self.shared_versions.generation(index)
            names_of_request.append(
                (index, generation, self.shared_versions.oldest_valid_version(index, generation))
            )
        names = [
            self.shared_versions.name(index, generation)
            for index, generation, _ in names_of_request
        ]
        found_values = self.values_until_end(self.send_request(b"get %s\r\n" % b" ".join(names)))
        indices = [names.index(key) if key in names else -1 for key, _ in found_values]
        if -1 in indices or indices != sorted(set(indices)):
            self.violation(f"a multi-get of {count} keys returned keys at {indices}")
            return
        values = dict(found_values)
        for (index, generation, oldest_valid_version), name in zip(
            names_of_request, names, strict=True
        ):
            self.check_version(index, generation, oldest_valid_version, values.get(name))

    def read_meta(self) -> None:
        """Pipelined mg with opaque and key; the opaque names the request."""
        indexes = self.random.sample(range(self.plan.keys), self.random.randint(1, 12))
        names_of_request = {}
        request = b""
        for index in indexes:
            generation = self.shared_versions.generation(index)
            self.serial += 1
            opaque = b"o%d" % self.serial
            names_of_request[opaque] = (
                index,
                generation,
                self.shared_versions.oldest_valid_version(index, generation),
            )
            request += b"mg %s v k O%s\r\n" % (self.shared_versions.name(index, generation), opaque)
        line = self.send_request(request + b"mn\r\n")
        order = list(names_of_request)
        while line != b"MN":
            parts = line.split()
            value = self.connection.read_value(int(parts[1])) if parts[0] == b"VA" else None
            if parts[0] not in (b"VA", b"EN", b"HD"):
                raise ValueError(f"mg: reply {line[:60]!r}")
            expected = order.pop(0)
            if value is not None:
                opaque = next((part[1:] for part in parts[2:] if part[:1] == b"O"), b"")
                key = next((part[1:] for part in parts[2:] if part[:1] == b"k"), b"")
                index, generation, oldest_valid_version = names_of_request[expected]
                if opaque != expected or key != self.shared_versions.name(index, generation):
                    self.violation(f"mg {expected!r}: reply {line[:80]!r}")
                else:
                    self.check_version(index, generation, oldest_valid_version, value)
            else:
                self.check_version(*names_of_request[expected], None)
            line = self.connection.read_line()
        if order:
            self.violation(f"{len(order)} meta requests without a reply")
