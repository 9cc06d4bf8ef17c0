//! What calls cost: time by phase, by size of the value and by width of a bulk read.
//!
//! The first question about a slow page is "is it the network or my serialiser?", so every call
//! leaves its share of each phase here. Counting costs two clock readings and a few additions: all
//! cells are atomics, and what two threads add at once is exact, while a snapshot taken meanwhile
//! may be torn between cells.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The parts of a call, in the order in which a write and then a read meet them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostPart {
    /// Encoding a value as bytes.
    Serialise,
    /// Compressing the bytes.
    Compress,
    /// Waiting for a connection, or connecting.
    Wait,
    /// From the first byte sent to the last received: network and server.
    Wire,
    /// Decompressing the bytes.
    Decompress,
    /// Decoding a value from the bytes.
    Deserialise,
}

/// Every part, with its name.
pub const PARTS: [(CostPart, &str); 6] = [
    (CostPart::Serialise, "serialise"),
    (CostPart::Compress, "compress"),
    (CostPart::Wait, "wait"),
    (CostPart::Wire, "network+server"),
    (CostPart::Decompress, "decompress"),
    (CostPart::Deserialise, "deserialise"),
];

/// Size decades: the last takes all from 100 MB on. Decade 0 is below 10 bytes.
pub const SIZE_DECADES: usize = 9;

/// Width classes of bulk calls: 1, 2-3, 4-7, ..., 1024 and more.
pub const WIDTH_CLASSES: usize = 11;

/// Buckets of a latency histogram: bucket i holds times below 2^i microseconds.
pub const LATENCY_BUCKETS: usize = 24;

/// The kind of a call about one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// Reads.
    Read,
    /// Writes of a value.
    Write,
    /// The rest: removal, expiry, arithmetic, administration.
    Other,
}

/// The class in which a call is counted, with the bytes of values that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallClass {
    /// About one value.
    Single(OperationKind, usize),
    /// About this many keys.
    Bulk(usize, usize),
    /// About a server, or an internal request of the client.
    Uncounted,
}

/// Every kind, with its name.
pub const OPERATION_KINDS: [(OperationKind, &str); 3] = [
    (OperationKind::Read, "read"),
    (OperationKind::Write, "write"),
    (OperationKind::Other, "other"),
];

/// A time in nanoseconds, of which 64 bits hold 584 years, without the 128 bits of [`Duration::as_nanos`].
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    let whole_seconds_ns = time.as_secs().wrapping_mul(1_000_000_000);
    whole_seconds_ns.wrapping_add(u64::from(time.subsec_nanos()))
}

/// The times of one call.
#[derive(Debug, Clone, Copy, Default)]
pub struct TimeSpent {
    /// Nanoseconds for each of [`PARTS`].
    pub parts_ns: [u64; PARTS.len()],
}

impl TimeSpent {
    /// Adds a time to a part.
    pub fn add(&mut self, part: CostPart, ns: u64) {
        if let Some(sum_ns) = self.parts_ns.get_mut(part as usize) {
            *sum_ns += ns;
        }
    }

    /// Nanoseconds of a part.
    pub fn part_ns(&self, part: CostPart) -> u64 {
        self.parts_ns.get(part as usize).copied().unwrap_or_default()
    }

    /// Adds a time to a part.
    pub fn add_time(&mut self, part: CostPart, time: Duration) {
        self.add(part, nanoseconds(time));
    }
}

/// Sums of one class of calls.
#[derive(Debug, Default)]
struct CostCell {
    calls: AtomicU64,
    bytes: AtomicU64,
    parts_ns: [AtomicU64; PARTS.len()],
    /// Calls by the time of their wire part.
    latency_counts: [AtomicU64; LATENCY_BUCKETS],
}

/// Sums of one class of calls, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellSnapshot {
    /// How many calls.
    pub calls: u64,
    /// Bytes of their values on the wire.
    pub bytes: u64,
    /// Nanoseconds for each of [`PARTS`].
    pub parts_ns: [u64; PARTS.len()],
    /// Calls whose network+server time was below 2^i microseconds and not below half of it.
    pub latency_counts: [u64; LATENCY_BUCKETS],
}

/// All classes of one client.
#[derive(Debug, Default)]
pub struct Costs {
    by_size: [[CostCell; SIZE_DECADES]; OPERATION_KINDS.len()],
    by_width: [CostCell; WIDTH_CLASSES],
    near_hits: AtomicU64,
    near_bytes: AtomicU64,
}

impl CostCell {
    fn add(&self, spent: &TimeSpent, value_bytes: u64) {
        // Relaxed: the sums are independent.
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(value_bytes, Ordering::Relaxed);
        for (sum_ns, &ns) in self.parts_ns.iter().zip(&spent.parts_ns) {
            if ns > 0 {
                sum_ns.fetch_add(ns, Ordering::Relaxed);
            }
        }
        let wire_us =
            spent.parts_ns.get(CostPart::Wire as usize).copied().unwrap_or_default() / 1000;
        let bucket_index = (u64::BITS - wire_us.leading_zeros()) as usize;
        if let Some(count) = self.latency_counts.get(bucket_index.min(LATENCY_BUCKETS - 1)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn snapshot(&self) -> CellSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CellSnapshot {
            calls: load(&self.calls),
            bytes: load(&self.bytes),
            parts_ns: std::array::from_fn(|part_index| {
                self.parts_ns.get(part_index).map_or(0, load)
            }),
            latency_counts: std::array::from_fn(|bucket_index| {
                self.latency_counts.get(bucket_index).map_or(0, load)
            }),
        }
    }
}

/// The size decade of a value: 0 below 10 bytes, 1 below 100, and so on.
pub fn decade_of(value_bytes: u64) -> usize {
    let decade = if value_bytes == 0 { 0 } else { value_bytes.ilog10() as usize };
    decade.min(SIZE_DECADES - 1)
}

/// The width class of a bulk call.
pub fn width_class_of(key_count: usize) -> usize {
    (key_count.max(1).ilog2() as usize).min(WIDTH_CLASSES - 1)
}

impl Costs {
    /// Counts a call that received this many bytes of values.
    pub fn count_call(&self, class: CallClass, found_bytes: usize, spent: &TimeSpent) {
        match class {
            CallClass::Single(operation_kind, sent_bytes) => {
                self.count_single(operation_kind, (sent_bytes + found_bytes) as u64, spent);
            }
            CallClass::Bulk(key_count, sent_bytes) => {
                self.count_bulk(key_count, (sent_bytes + found_bytes) as u64, spent);
            }
            CallClass::Uncounted => {}
        }
    }

    /// Counts a call about one value.
    pub fn count_single(&self, operation_kind: OperationKind, value_bytes: u64, spent: &TimeSpent) {
        let cell = self
            .by_size
            .get(operation_kind as usize)
            .and_then(|cells| cells.get(decade_of(value_bytes)));
        if let Some(cell) = cell {
            cell.add(spent, value_bytes);
        }
    }

    /// Counts a bulk call.
    pub fn count_bulk(&self, key_count: usize, value_bytes: u64, spent: &TimeSpent) {
        if let Some(cell) = self.by_width.get(width_class_of(key_count)) {
            cell.add(spent, value_bytes);
        }
    }

    /// Counts keys that were read without a call, from what the process keeps.
    pub fn count_near(&self, hit_count: usize, value_bytes: usize) {
        self.near_hits.fetch_add(hit_count as u64, Ordering::Relaxed);
        self.near_bytes.fetch_add(value_bytes as u64, Ordering::Relaxed);
    }

    /// The keys that were read without a call, and the bytes of their values.
    pub fn near_hits(&self) -> (u64, u64) {
        let hits = self.near_hits.load(Ordering::Relaxed);
        (hits, self.near_bytes.load(Ordering::Relaxed))
    }

    /// The classes of single calls that have any: kind, decade, sums.
    pub fn by_size(&self) -> Vec<(OperationKind, usize, CellSnapshot)> {
        let cells_of_kinds = OPERATION_KINDS.iter().zip(&self.by_size);
        cells_of_kinds
            .flat_map(|((operation_kind, _), cells)| {
                cells
                    .iter()
                    .enumerate()
                    .map(|(decade, cell)| (*operation_kind, decade, cell.snapshot()))
            })
            .filter(|(_, _, cell)| cell.calls > 0)
            .collect()
    }

    /// The width classes of bulk calls that have any.
    pub fn by_width(&self) -> Vec<(usize, CellSnapshot)> {
        let cells = self.by_width.iter().map(CostCell::snapshot).enumerate();
        cells.filter(|(_, cell)| cell.calls > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_found_in_its_decade_with_its_parts() {
        let costs = Costs::default();
        let mut spent = TimeSpent::default();
        spent.add(CostPart::Wire, 9_000);
        costs.count_single(OperationKind::Read, 1024, &spent);
        let cells = costs.by_size();
        let [(operation_kind, decade, cell)] = &cells[..] else {
            panic!("{cells:?}");
        };
        assert_eq!((*operation_kind, *decade), (OperationKind::Read, 3));
        assert_eq!(cell.parts_ns[CostPart::Wire as usize], 9_000);
        assert_eq!(cell.latency_counts[4], 1, "9 us lie between 8 and 16");
    }

    #[test]
    fn values_and_calls_beyond_the_last_class_count_in_it() {
        assert_eq!((decade_of(0), decade_of(9), decade_of(10), decade_of(u64::MAX)), (0, 0, 1, 8));
        assert_eq!((width_class_of(0), width_class_of(1), width_class_of(1 << 20)), (0, 0, 10));
    }
}
