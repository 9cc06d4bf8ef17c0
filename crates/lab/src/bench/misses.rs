//! What eviction loses: real key streams replayed look-aside against both servers at equal `-m`.
//!
//! An application gets a key and stores it after a miss; every miss of a key that was stored before could have
//! been avoided by a better server. A key that comes with two sizes counts as two keys, so that resizing never
//! arises. Small traces are copied side by side into key spaces of their own, request by request, until memory
//! limits are large enough for memcached's pages not to decide.
//!
//! All copies are driven by one thread, so that none runs ahead of the others. A connection reads its next
//! keys, none twice, by one multi-get, then stores what was missing and reads on: per key that is exactly
//! get, then set, then get.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glasscache_sim::trace::{self, Batch as Rows, Columns};
use serde::Serialize;

use super::{Error, Sides};
use crate::load::{self, Batch, KEY_BYTES, Outcome, Plan, Pool, Size, Step, Work, key_text, mix};
use crate::target::Spawn;

/// Traces are copied until their footprint is at least this.
const FOOTPRINT_BYTES_MIN: u64 = 640 << 20;

/// Longer values are cut: memcached's default item size must take them.
const VALUE_BYTES_MAX: u32 = 1_000_000;

/// Keys of a multi-get.
const WINDOW: usize = 100;

/// Connections of a replay, each with its share of the copies.
const CONNECTIONS: u32 = 8;

/// A key stream, ready to be replayed.
#[derive(Debug)]
pub struct Trace {
    /// The file's name without its ending.
    pub name: String,
    /// Requests in order, as numbers of distinct (key, size) pairs.
    requests: Vec<u32>,
    distinct: usize,
    /// How many copies run side by side.
    pub copies: u32,
    /// Length of each value: all pairs of the first copy, then of the second, and so on.
    value_bytes: Vec<u32>,
}

impl Trace {
    /// Reads a trace, at most `requests_max` of its requests.
    pub fn read(path: &Path, requests_max: Option<usize>) -> Result<Self, Error> {
        let failed = |message: String| Error::File(path.to_owned(), message);
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        let file_name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut stream = trace::open(&file_name, file, Columns::ALL)
            .map_err(|error| failed(error.to_string()))?;
        let (mut rows, mut numbers) = (Rows::default(), HashMap::new());
        let (mut requests, mut sizes) = (Vec::new(), Vec::new());
        let wanted = requests_max.unwrap_or(usize::MAX);
        while requests.len() < wanted
            && stream
                .read(&mut rows)
                .map_err(|error| failed(error.to_string()))?
                > 0
        {
            for (at, &key) in rows.key.iter().enumerate().take(wanted - requests.len()) {
                let size: Option<u32> = rows.size.get(at).copied().flatten();
                let next = sizes.len() as u32;
                let number = *numbers.entry((key, size)).or_insert(next);
                if number == next {
                    sizes.push(size.map(|bytes| bytes.min(VALUE_BYTES_MAX)));
                }
                requests.push(number);
            }
        }
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Self::new(name, requests, &sizes))
    }

    fn new(name: String, requests: Vec<u32>, sizes: &[Option<u32>]) -> Self {
        let mut trace = Self {
            name,
            requests,
            distinct: sizes.len(),
            copies: 0,
            value_bytes: Vec::new(),
        };
        while trace.copies == 0 || trace.footprint_bytes() < FOOTPRINT_BYTES_MIN {
            trace.add_copy(sizes);
        }
        trace
    }

    /// Sizes that the trace does not tell are drawn from the number of the key and of the copy.
    fn add_copy(&mut self, sizes: &[Option<u32>]) {
        let first = u64::from(self.copies) << 32;
        let drawn = |number: u64| Size::MIX.of(mix(first | number)) as u32;
        let bytes = (0..)
            .zip(sizes)
            .map(|(number, size)| size.unwrap_or_else(|| drawn(number)));
        self.value_bytes.extend(bytes);
        self.copies += 1;
    }

    /// The number under which a pair of a copy is stored.
    fn slot(&self, copy: u32, number: usize) -> u64 {
        (copy as usize * self.distinct + number) as u64
    }

    fn bytes_of(&self, slot: u64) -> usize {
        self.value_bytes
            .get(slot as usize)
            .map_or(0, |&bytes| bytes as usize)
    }

    /// Requests of all copies.
    pub fn requests_all(&self) -> u64 {
        self.requests.len() as u64 * u64::from(self.copies)
    }

    /// Misses that no cache avoids.
    pub fn first_uses(&self) -> u64 {
        self.value_bytes.len() as u64
    }

    /// Key and value bytes of all distinct items of all copies.
    pub fn footprint_bytes(&self) -> u64 {
        self.value_bytes
            .iter()
            .map(|&bytes| u64::from(bytes) + KEY_BYTES as u64)
            .sum()
    }
}

/// What a replay against one server showed.
#[derive(Debug, Clone, Serialize)]
pub struct Replayed {
    /// Gets without a value.
    pub misses: u64,
    /// Misses of keys that had been stored.
    pub avoidable: u64,
    /// Sets that were refused.
    pub refused: u64,
    /// `VmRSS` and huge pages at the end.
    pub resident_bytes: u64,
    /// Key and value bytes that could be read back at the end.
    pub user_bytes: u64,
    /// Requests (gets) a second, for the impatient.
    pub requests_per_s: f64,
}

/// Both servers at one size.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// Which trace.
    pub trace: String,
    /// Requests of all copies.
    pub requests: u64,
    /// Copies.
    pub copies: u32,
    /// Misses that no cache avoids.
    pub first_uses: u64,
    /// `-m` as a share of the footprint.
    pub fraction: f64,
    /// `-m`.
    pub memory_mib: u64,
    /// glasscache.
    pub ours: Replayed,
    /// memcached.
    pub theirs: Option<Replayed>,
    /// Avoidable misses of an exact LRU that holds as many user bytes as glasscache did.
    pub lru_avoidable: u64,
}

impl Point {
    /// Avoidable misses, ours over memcached's; at least one miss is assumed on each side.
    pub fn ratio(&self) -> Option<f64> {
        let theirs = self.theirs.as_ref()?.avoidable.max(1) as f64;
        Some(self.ours.avoidable.max(1) as f64 / theirs)
    }
}

/// Replays `trace` at one fraction of its footprint; `alone` leaves memcached out.
pub fn point(
    sides: &Sides,
    trace: &Arc<Trace>,
    fraction: f64,
    alone: bool,
) -> Result<Point, Error> {
    let footprint = trace.footprint_bytes() as f64;
    let memory_mib = ((footprint * fraction / f64::from(1 << 20)).round() as u64).max(64);
    let ours = replay(sides, &sides.ours(memory_mib), trace)?;
    let theirs = if alone {
        None
    } else {
        Some(replay(sides, &sides.theirs(memory_mib), trace)?)
    };
    let lru_avoidable = lru_misses(trace, ours.user_bytes) - trace.first_uses();
    Ok(Point {
        trace: trace.name.clone(),
        requests: trace.requests_all(),
        copies: trace.copies,
        first_uses: trace.first_uses(),
        fraction,
        memory_mib,
        ours,
        theirs,
        lru_avoidable,
    })
}

fn replay(sides: &Sides, spawn: &Spawn, trace: &Arc<Trace>) -> Result<Replayed, Error> {
    let server = spawn.start().map_err(Error::Start)?;
    let connections = CONNECTIONS.min(trace.copies);
    let plan = Plan {
        connections: connections as usize,
        depth: WINDOW + 1,
        cpus: sides.pins(&sides.layout.reader().generator),
        stop: sides.stop.clone(),
        ..Plan::new(server.address)
    };
    let work = Replay::new(Arc::clone(trace), connections);
    let run =
        |work| load::run(&plan, vec![work], &server.meter()).map_err(Error::load(server.name));
    let (report, mut works) = run(work)?;
    if report.tally.wrong > 0 {
        let what = report.tally.difference.unwrap_or_default();
        return Err(Error::Wrong {
            server: server.name.to_owned(),
            count: report.tally.wrong,
            what,
        });
    }
    let resident_bytes = server.resident_bytes();
    let misses = works.iter().map(|work| work.misses).sum::<u64>();
    let refused = works.iter().map(|work| work.refused).sum();
    let requests_per_s = trace.requests_all() as f64 / report.seconds;
    // What is left is asked for by the same workload, once through all keys, without storing anything.
    let (_, works) = run(works.remove(0).into_inventory())?;
    Ok(Replayed {
        misses,
        avoidable: misses.saturating_sub(trace.first_uses()),
        refused,
        resident_bytes,
        user_bytes: works.iter().map(|work| work.hit_bytes).sum(),
        requests_per_s,
    })
}

/// The look-aside application.
struct Replay {
    trace: Arc<Trace>,
    pool: Pool,
    cursors: Vec<Cursor>,
    /// Walks through each distinct key once instead of the requests, and stores nothing.
    is_inventory: bool,
    misses: u64,
    refused: u64,
    hit_bytes: u64,
}

/// Where a connection stands.
#[derive(Default)]
struct Cursor {
    copies: Vec<u32>,
    /// Index of the request, and of the copy within it.
    request: usize,
    copy: usize,
    window: Vec<u64>,
    /// Missed keys not stored yet.
    missing: Vec<u64>,
    is_reading: bool,
}

impl Replay {
    fn new(trace: Arc<Trace>, connections: u32) -> Self {
        let mut cursors: Vec<Cursor> = (0..connections).map(|_| Cursor::default()).collect();
        for (copy, at) in (0..trace.copies).zip((0..connections as usize).cycle()) {
            if let Some(cursor) = cursors.get_mut(at) {
                cursor.copies.push(copy);
            }
        }
        let pool = Pool::new(VALUE_BYTES_MAX as usize, 1);
        Self {
            trace,
            pool,
            cursors,
            is_inventory: false,
            misses: 0,
            refused: 0,
            hit_bytes: 0,
        }
    }

    fn into_inventory(self) -> Self {
        let connections = self.cursors.len() as u32;
        Self {
            is_inventory: true,
            ..Self::new(self.trace, connections)
        }
    }
}

impl Cursor {
    /// Fills the window with the next requests up to the first key that is in it already.
    fn advance(&mut self, trace: &Trace, is_inventory: bool) {
        self.window.clear();
        let end = if is_inventory {
            trace.distinct
        } else {
            trace.requests.len()
        };
        while self.window.len() < WINDOW && self.request < end {
            let Some(&copy) = self.copies.get(self.copy) else {
                (self.request, self.copy) = (self.request + 1, 0);
                continue;
            };
            let number = match trace.requests.get(self.request) {
                Some(&number) if !is_inventory => number as usize,
                _ => self.request,
            };
            let slot = trace.slot(copy, number);
            if self.window.contains(&slot) {
                break;
            }
            self.window.push(slot);
            self.copy += 1;
        }
    }
}

impl Work for Replay {
    fn next(&mut self, connection: usize, batch: &mut Batch<'_>) -> Step {
        let Some(cursor) = self.cursors.get_mut(connection) else {
            return Step::Finished;
        };
        if let Some(id) = cursor.missing.pop() {
            cursor.is_reading = false;
            batch.set(self, id, 0);
            return Step::Sent;
        }
        if cursor.is_reading {
            cursor.is_reading = false;
            return Step::Wait;
        }
        cursor.advance(&self.trace, self.is_inventory);
        if cursor.window.is_empty() {
            return Step::Finished;
        }
        cursor.is_reading = true;
        let window = std::mem::take(&mut cursor.window);
        batch.get(self, &window);
        if let Some(cursor) = self.cursors.get_mut(connection) {
            cursor.window = window;
        }
        Step::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&key_text(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.pool.value(id, 0, self.trace.bytes_of(id))
    }

    fn done(&mut self, connection: usize, id: u64, outcome: Outcome) {
        match outcome {
            Outcome::Hit if self.is_inventory => {
                self.hit_bytes += (KEY_BYTES + self.trace.bytes_of(id)) as u64;
            }
            Outcome::Miss => {
                self.misses += 1;
                if let Some(cursor) = self
                    .cursors
                    .get_mut(connection)
                    .filter(|_| !self.is_inventory)
                {
                    cursor.missing.push(id);
                }
            }
            Outcome::Refused => self.refused += 1,
            Outcome::Hit | Outcome::Stored | Outcome::Wrong => {}
        }
    }
}

/// Misses of an exact LRU of `capacity_bytes` user bytes over the same requests, all copies interleaved.
pub fn lru_misses(trace: &Trace, capacity_bytes: u64) -> u64 {
    let mut lru = Lru::new(trace.value_bytes.len(), capacity_bytes);
    let mut misses = 0;
    for &number in &trace.requests {
        for copy in 0..trace.copies {
            let slot = trace.slot(copy, number as usize) as usize;
            misses += u64::from(!lru.access(slot, &trace.value_bytes));
        }
    }
    misses
}

/// A list through all slots, most recently used first; slot `count` is its head and its end.
struct Lru {
    newer: Vec<u32>,
    older: Vec<u32>,
    is_in: Vec<bool>,
    room: u64,
}

impl Lru {
    fn new(count: usize, capacity_bytes: u64) -> Self {
        let head = count as u32;
        Self {
            newer: vec![head; count + 1],
            older: vec![head; count + 1],
            is_in: vec![false; count],
            room: capacity_bytes,
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "slots are below the count that sized every vector"
    )]
    fn access(&mut self, slot: usize, value_bytes: &[u32]) -> bool {
        let was_in = self.is_in[slot];
        let head = self.is_in.len();
        if was_in {
            self.unlink(slot);
        } else {
            let bytes = u64::from(value_bytes[slot]) + KEY_BYTES as u64;
            while self.room < bytes {
                let victim = self.newer[head] as usize;
                if victim == head {
                    return false;
                }
                self.unlink(victim);
                self.is_in[victim] = false;
                self.room += u64::from(value_bytes[victim]) + KEY_BYTES as u64;
            }
            self.room -= bytes;
            self.is_in[slot] = true;
        }
        let first = self.older[head] as usize;
        self.older[slot] = first as u32;
        self.newer[slot] = head as u32;
        self.newer[first] = slot as u32;
        self.older[head] = slot as u32;
        was_in
    }

    #[expect(clippy::indexing_slicing, reason = "links hold slots or the head")]
    fn unlink(&mut self, slot: usize) {
        let (newer, older) = (self.newer[slot] as usize, self.older[slot] as usize);
        self.older[newer] = older as u32;
        self.newer[older] = newer as u32;
    }
}

/// The traces of a folder, by name.
pub fn traces_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| Error::File(folder.to_owned(), error.to_string()))?;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "parquet"))
        .collect();
    paths.sort_unstable();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(requests: &[u32], copies: u32) -> Trace {
        let distinct = requests.iter().max().map_or(0, |max| max + 1) as usize;
        let value_bytes = vec![80; distinct * copies as usize];
        Trace {
            name: "t".into(),
            requests: requests.to_vec(),
            distinct,
            copies,
            value_bytes,
        }
    }

    #[test]
    fn lru_evicts_what_was_used_longest_ago() {
        // Room for two items of 100 bytes: 2 pushes 1 out, since 0 was used again.
        let requests = [0, 1, 0, 2, 0, 1];
        assert_eq!(lru_misses(&trace(&requests, 1), 200), 4);
        assert_eq!(lru_misses(&trace(&requests, 2), 400), 8);
        assert_eq!(lru_misses(&trace(&requests, 1), 300), 3);
        assert_eq!(lru_misses(&trace(&requests, 1), 50), 6);
    }

    #[test]
    fn a_window_holds_no_key_twice_and_all_copies_of_a_request() {
        let trace = trace(&[0, 1, 0, 2], 2);
        let mut cursor = Cursor {
            copies: vec![0, 1],
            ..Cursor::default()
        };
        cursor.advance(&trace, false);
        assert_eq!(cursor.window, [0, 3, 1, 4]);
        cursor.advance(&trace, false);
        assert_eq!(cursor.window, [0, 3, 2, 5]);
        cursor.advance(&trace, false);
        assert!(cursor.window.is_empty());
    }
}
