//! The watchers of a server and their pending lines.
//!
//! Lines wait for the next of the times at which watchers are served, so that twenty thousand a second cost a hundred
//! packets (docs/decisions/strategies.md, 0082). A watcher that does not read loses lines, and is sent their
//! number, so that a slow reader never delays the cache. All watchers together have a share of the memory for peers;
//! where it is used up, lines are lost earlier.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use glasscache_protocol::{ascii, percent};

use crate::shared::lock::lock;
use crate::shared::peer_memory::{Charge, PeerMemory};
use crate::shared::wake::Waker;

/// Maximum number of watchers: each process with a coherent near cache is one. memcached has 20.
const WATCHERS_MAX: usize = 1000;

/// Time between two times at which watchers are sent their lines and heartbeats.
pub(crate) const SEND_INTERVAL: Duration = Duration::from_millis(10);

/// All heartbeats together take at most so many thousandths of a processor. With what workers take to wake up for them
/// that is less than a twentieth.
const HEARTBEAT_SHARE_PERMILLE: u64 = 35;

/// CPU time of a heartbeat until it is measured.
const HEARTBEAT_CPU_NS: u64 = 4_000;

/// A measured CPU time changes the mean by its difference divided by this.
const MEAN_DIVISOR: u64 = 8;

/// The lines of all watchers may take this part of the limit of `peer_memory`, and half as much again.
const SHARE_DIVISOR: usize = 4;

/// Bytes of what may follow the lines of a watcher.
const TAIL_BYTES: usize = 96;

/// A watcher is urgent, and is served earlier, when its lines fill its buffer divided by this.
const URGENT_DIVISOR: usize = 4;

/// Kinds of events, one bit each.
pub(crate) mod kind {
    pub(crate) const FETCHERS: u16 = 1;
    pub(crate) const MUTATIONS: u16 = 2;
    pub(crate) const EVICTIONS: u16 = 4;
    pub(crate) const CONNEVENTS: u16 = 8;
    pub(crate) const DELETIONS: u16 = 16;
    /// Kinds that memcached has and this server never reports: accepted, silent.
    pub(crate) const UNREPORTED: u16 = 32;
}

/// The events that one connection watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchFilter {
    kinds: u16,
    /// Only lines about keys that start with it, and those about all keys.
    prefix: Vec<u8>,
    /// Whether the client requested heartbeats: each means that the watcher has received every line so far.
    wants_heartbeats: bool,
}

/// The keys that a line is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject<'k> {
    Key(&'k [u8]),
    Prefix(&'k [u8]),
    /// All keys, or none.
    Any,
}

impl WatchFilter {
    /// Parses the arguments of `watch`; without a kind it is fetchers.
    pub(crate) fn parse(arguments: &[u8]) -> Option<WatchFilter> {
        let mut filter = WatchFilter { kinds: 0, prefix: Vec::new(), wants_heartbeats: false };
        for token in ascii::tokens(arguments) {
            filter.kinds |= match token {
                b"fetchers" => kind::FETCHERS,
                b"mutations" => kind::MUTATIONS,
                b"evictions" => kind::EVICTIONS,
                b"connevents" => kind::CONNEVENTS,
                b"deletions" => kind::DELETIONS,
                b"rawcmds" | b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" => {
                    kind::UNREPORTED
                }
                b"heartbeat" => {
                    filter.wants_heartbeats = true;
                    0
                }
                _ => {
                    filter.prefix = percent::decode(token.strip_prefix(b"prefix=")?);
                    0
                }
            };
        }
        if filter.kinds == 0 {
            filter.kinds = kind::FETCHERS;
        }
        Some(filter)
    }

    fn matches(&self, kind: u16, subject: Subject<'_>) -> bool {
        let is_of_prefix = match subject {
            Subject::Key(key) => key.starts_with(&self.prefix),
            Subject::Prefix(prefix) => {
                prefix.starts_with(&self.prefix) || self.prefix.starts_with(prefix)
            }
            Subject::Any => true,
        };
        self.kinds & kind != 0 && is_of_prefix
    }
}

/// All watchers of one server.
pub(crate) struct Watchers {
    /// Maximum of unsent bytes of a watcher before lines are dropped.
    buffer_bytes_max: usize,
    /// The kinds that any watcher watches.
    kinds: AtomicU16,
    last_line_id: AtomicU64,
    peer_memory: Arc<PeerMemory>,
    /// The number of watchers with heartbeats.
    heartbeat_count: AtomicUsize,
    /// Mean CPU time of a heartbeat in ns.
    heartbeat_cpu_ns: AtomicU64,
    registered: Mutex<Registered>,
    /// The time from which heartbeats count milliseconds.
    heartbeat_origin: Instant,
}

#[derive(Default)]
struct Registered {
    /// The watchers by the serial number of their connection.
    by_serial: BTreeMap<u64, Watcher>,
    /// Bytes of lines that all of them hold, those that sockets did not take included.
    line_bytes: usize,
}

struct Watcher {
    filter: WatchFilter,
    unsent_lines: Vec<u8>,
    /// Charged for `unsent_lines`.
    charge: Charge,
    /// Bytes of the lines taken last that its socket did not take.
    pending_bytes: usize,
    skipped_lines: u64,
    /// Whether the loss of lines was logged since it last caught up.
    is_loss_logged: bool,
    /// Whether it has lines to be sent; read without a lock.
    line_state: Arc<AtomicU8>,
    /// Wakes the worker that owns the connection.
    owner_waker: Waker,
}

/// What a connection keeps of its watch, to know without a lock whether it has to be served.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    line_state: Arc<AtomicU8>,
    /// Whether the client requested heartbeats.
    pub(crate) wants_heartbeats: bool,
}

/// States of the lines of a watcher.
const LINES_NONE: u8 = 0;
const LINES_PENDING: u8 = 1;
const LINES_URGENT: u8 = 2;

impl Watch {
    /// Whether lines wait to be sent.
    pub(crate) fn has_lines(&self) -> bool {
        self.line_state.load(Ordering::Acquire) != LINES_NONE
    }

    /// Whether so many lines wait that they are sent before the others.
    pub(crate) fn is_urgent(&self) -> bool {
        self.line_state.load(Ordering::Acquire) == LINES_URGENT
    }
}

impl Watchers {
    pub(crate) fn new(buffer_bytes_max: usize, peer_memory: Arc<PeerMemory>) -> Watchers {
        Watchers {
            buffer_bytes_max,
            kinds: AtomicU16::new(0),
            last_line_id: AtomicU64::new(0),
            peer_memory,
            heartbeat_count: AtomicUsize::new(0),
            heartbeat_cpu_ns: AtomicU64::new(HEARTBEAT_CPU_NS),
            registered: Mutex::default(),
            heartbeat_origin: Instant::now(),
        }
    }

    /// Whether there are watchers.
    pub(crate) fn has_watchers(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) != 0
    }

    /// The number of watchers.
    pub(crate) fn count(&self) -> usize {
        lock(&self.registered).by_serial.len()
    }

    /// Adds a watcher; `None` when there are too many.
    pub(crate) fn add(
        &self,
        serial: u64,
        filter: WatchFilter,
        owner_waker: Waker,
    ) -> Option<Watch> {
        let mut registered = lock(&self.registered);
        if registered.by_serial.len() >= WATCHERS_MAX {
            return None;
        }
        let watch = Watch { line_state: Arc::default(), wants_heartbeats: filter.wants_heartbeats };
        self.kinds.fetch_or(filter.kinds, Ordering::Relaxed);
        let watcher = Watcher {
            filter,
            unsent_lines: Vec::new(),
            charge: self.peer_memory.charge(0),
            pending_bytes: 0,
            skipped_lines: 0,
            is_loss_logged: false,
            line_state: Arc::clone(&watch.line_state),
            owner_waker,
        };
        registered.by_serial.insert(serial, watcher);
        self.count_heartbeats(&registered);
        Some(watch)
    }

    /// Removes a connection from the watchers, if it is one.
    pub(crate) fn remove(&self, serial: u64) {
        let mut registered = lock(&self.registered);
        if let Some(watcher) = registered.by_serial.remove(&serial) {
            registered.line_bytes -= watcher.line_bytes();
        }
        let watchers = registered.by_serial.values();
        let kinds = watchers.fold(0, |kinds, watcher| kinds | watcher.filter.kinds);
        self.kinds.store(kinds, Ordering::Relaxed);
        self.count_heartbeats(&registered);
    }

    fn count_heartbeats(&self, registered: &Registered) {
        let watchers = registered.by_serial.values();
        let count = watchers.filter(|watcher| watcher.filter.wants_heartbeats).count();
        self.heartbeat_count.store(count, Ordering::Relaxed);
    }

    /// Time between two heartbeats of a watcher: [`SEND_INTERVAL`], longer if there are so many watchers that their
    /// heartbeats would take more than their share of a processor.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        let count = self.heartbeat_count.load(Ordering::Relaxed) as u64;
        let cpu_ns = self.heartbeat_cpu_ns.load(Ordering::Relaxed);
        let interval_ns = cpu_ns.saturating_mul(count * 1000) / HEARTBEAT_SHARE_PERMILLE;
        Duration::from_nanos(interval_ns).max(SEND_INTERVAL)
    }

    /// Records the CPU time that sending to this many watchers took.
    pub(crate) fn record_heartbeats(&self, sent_count: usize, cpu_time: Duration) {
        let Some(sample_ns) = (cpu_time.as_nanos() as u64).checked_div(sent_count as u64) else {
            return;
        };
        let mean_ns = self.heartbeat_cpu_ns.load(Ordering::Relaxed);
        let mean_ns = mean_ns - mean_ns / MEAN_DIVISOR + sample_ns / MEAN_DIVISOR;
        // Of two workers that record at the same time, one may lose its sample.
        self.heartbeat_cpu_ns.store(mean_ns, Ordering::Relaxed);
    }

    /// A heartbeat, for a watcher that has been sent all lines so far.
    pub(crate) fn heartbeat(&self) -> String {
        format!("type=heartbeat ms={}\n", self.heartbeat_origin.elapsed().as_millis())
    }

    /// Takes the pending lines of one watcher, and after them the number of lines it missed: a watcher that has caught
    /// up and waits is informed at once, not with the next event. A watcher with heartbeats gets one at the end.
    pub(crate) fn take_lines(&self, serial: u64) -> Vec<u8> {
        let mut registered = lock(&self.registered);
        let Some(watcher) = registered.by_serial.get(&serial) else {
            return Vec::new();
        };
        let wants_heartbeats = watcher.filter.wants_heartbeats;
        let mut lines = registered.take_lines(serial);
        if wants_heartbeats {
            lines.extend_from_slice(self.heartbeat().as_bytes());
        }
        lines
    }

    /// Takes the pending lines of one watcher of a server that was replaced. No heartbeat follows them: the successor
    /// changes items already, of which this server has no lines.
    pub(crate) fn take_final_lines(&self, serial: u64) -> Vec<u8> {
        lock(&self.registered).take_lines(serial)
    }

    /// Records how many bytes of the lines taken last a socket did not take, until lines are taken again.
    pub(crate) fn record_pending(&self, serial: u64, bytes: usize) {
        let mut registered = lock(&self.registered);
        if let Some(watcher) = registered.by_serial.get_mut(&serial) {
            let previous_bytes = std::mem::replace(&mut watcher.pending_bytes, bytes);
            registered.line_bytes = registered.line_bytes + bytes - previous_bytes;
        }
    }

    /// Bytes of the unsent lines of each watcher that has some.
    pub(crate) fn unsent_bytes(&self) -> BTreeMap<u64, u64> {
        let registered = lock(&self.registered);
        let watchers = registered.by_serial.iter();
        let with_lines = watchers.filter(|(_, watcher)| watcher.charge.bytes() > 0);
        with_lines.map(|(serial, watcher)| (*serial, watcher.charge.bytes() as u64)).collect()
    }

    fn urgent_bytes(&self) -> usize {
        self.buffer_bytes_max / URGENT_DIVISOR
    }

    /// Whether any watcher watches this kind.
    pub(crate) fn is_watched(&self, kind: u16) -> bool {
        self.kinds.load(Ordering::Relaxed) & kind != 0
    }

    /// Appends one line for all watchers whose filter it matches; returns the serial number of one that just began to
    /// miss lines.
    pub(crate) fn publish(&self, kind: u16, subject: Subject<'_>, text: &[u8]) -> Option<u64> {
        let mut line = Vec::with_capacity(text.len() + 48);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line_id = self.last_line_id.fetch_add(1, Ordering::Relaxed) + 1;
        // Writing to a vector cannot fail.
        let _ = write!(line, "ts={}.{} gid={line_id} ", time.as_secs(), time.subsec_micros());
        line.extend_from_slice(text);
        line.push(b'\n');
        let mut lagging_serial = None;
        let mut registered = lock(&self.registered);
        let Registered { by_serial, line_bytes } = &mut *registered;
        let mut space = self.line_space(by_serial.len(), *line_bytes);
        for (serial, watcher) in
            by_serial.iter_mut().filter(|(_, watcher)| watcher.filter.matches(kind, subject))
        {
            watcher.append(&line, &mut space, self.urgent_bytes());
            if watcher.skipped_lines == 1 && !watcher.is_loss_logged {
                watcher.is_loss_logged = true;
                lagging_serial = Some(*serial);
            }
        }
        *line_bytes = space.line_bytes;
        lagging_serial
    }

    /// How much the lines of watchers may take: half of their share of the limit as they come, and each watcher its
    /// part of the share in any case. So all together never make memory short for others.
    fn line_space(&self, watcher_count: usize, line_bytes: usize) -> LineSpace {
        let share_bytes = self.peer_memory.limit_bytes() as usize / SHARE_DIVISOR;
        LineSpace {
            watcher_bytes_max: self.buffer_bytes_max,
            guaranteed_bytes: share_bytes / watcher_count.max(1),
            shared_bytes_max: share_bytes / 2,
            line_bytes,
        }
    }
}

/// How much the lines of watchers may take.
struct LineSpace {
    /// Most bytes of the unsent lines of one watcher.
    watcher_bytes_max: usize,
    /// Bytes that one watcher may hold in any case.
    guaranteed_bytes: usize,
    /// Bytes that all may hold, if they hold more than that.
    shared_bytes_max: usize,
    /// Bytes that all hold.
    line_bytes: usize,
}

impl LineSpace {
    /// Whether a watcher may hold `more_bytes` beside its `held_bytes`; they are counted if so.
    fn take(&mut self, held_bytes: usize, more_bytes: usize) -> bool {
        let may_take = held_bytes + more_bytes <= self.guaranteed_bytes
            || self.line_bytes + more_bytes <= self.shared_bytes_max;
        if may_take {
            self.line_bytes += more_bytes;
        }
        may_take
    }
}

impl Registered {
    fn take_lines(&mut self, serial: u64) -> Vec<u8> {
        let Some(watcher) = self.by_serial.get_mut(&serial) else {
            return Vec::new();
        };
        self.line_bytes -= watcher.line_bytes();
        watcher.take_lines()
    }
}

impl Watcher {
    /// Bytes of its lines, those that its socket did not take included.
    fn line_bytes(&self) -> usize {
        self.charge.bytes() + self.pending_bytes
    }

    fn append(&mut self, line: &[u8], space: &mut LineSpace, urgent_bytes: usize) {
        if !self.reserve(line.len(), space) {
            self.skipped_lines += 1;
            // It is told when it reads again.
            let _ = self.line_state.fetch_max(LINES_PENDING, Ordering::AcqRel);
            return;
        }
        self.unsent_lines.extend_from_slice(line);
        let is_urgent = self.unsent_lines.len() >= urgent_bytes;
        let state = if is_urgent { LINES_URGENT } else { LINES_PENDING };
        let state_before = self.line_state.fetch_max(state, Ordering::AcqRel);
        // Once: what a watcher does not take is sent when its socket is writable, or with the next lines.
        if is_urgent && state_before != LINES_URGENT {
            self.owner_waker.wake();
        }
    }

    /// Makes room for a line of this many bytes, if the watcher may hold it. Memory is charged before it is taken; it
    /// doubles, so that a line is rarely moved, unless that is more than is left.
    fn reserve(&mut self, line_bytes: usize, space: &mut LineSpace) -> bool {
        let (length, capacity) = (self.unsent_lines.len(), self.charge.bytes());
        let needed_bytes = length + line_bytes;
        if needed_bytes <= capacity {
            return true;
        }
        if needed_bytes > space.watcher_bytes_max {
            return false;
        }
        let doubled_bytes = (2 * capacity).clamp(needed_bytes, space.watcher_bytes_max);
        for new_capacity in [doubled_bytes, needed_bytes] {
            if space.take(self.line_bytes(), new_capacity - capacity) {
                self.charge.set(new_capacity);
                self.unsent_lines.reserve_exact(new_capacity - length);
                return true;
            }
        }
        false
    }

    fn take_lines(&mut self) -> Vec<u8> {
        let mut lines = std::mem::take(&mut self.unsent_lines);
        self.line_state.store(LINES_NONE, Ordering::Release);
        // For what follows: the number of lost lines, a heartbeat.
        lines.reserve_exact(TAIL_BYTES);
        self.pending_bytes = 0;
        self.charge.set(0);
        if self.skipped_lines > 0 {
            // Writing to a vector cannot fail.
            let _ = writeln!(lines, "skipped={}", self.skipped_lines);
            self.skipped_lines = 0;
            self.is_loss_logged = false;
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Arc<PeerMemory> {
        let config = glasscache_store::Config {
            memory_bytes: 64 << 20,
            workers: 1,
            ..glasscache_store::Config::default()
        };
        PeerMemory::new(glasscache_store::Store::new(config).unwrap(), Vec::new())
    }

    fn filter(arguments: &str) -> WatchFilter {
        WatchFilter::parse(arguments.as_bytes()).unwrap()
    }

    #[test]
    fn a_watcher_that_does_not_read_receives_the_number_of_missed_lines() {
        let watchers = Watchers::new(256 << 10, memory());
        assert!(watchers.add(1, filter("fetchers"), Waker::new().unwrap()).is_some());
        let text = [b'x'; 1000];
        for _ in 0..300 {
            watchers.publish(kind::FETCHERS, Subject::Any, &text);
        }
        let lines = String::from_utf8(watchers.take_lines(1)).unwrap();
        let last_line = lines.lines().last().unwrap();
        assert!(lines.len() - last_line.len() - 1 <= 256 << 10);
        let missed: usize = last_line.strip_prefix("skipped=").unwrap().parse().unwrap();
        assert_eq!(lines.lines().count() - 1 + missed, 300);
        watchers.publish(kind::FETCHERS, Subject::Any, &text);
        assert!(watchers.take_lines(1).starts_with(b"ts="));
        watchers.remove(1);
        assert!(!watchers.has_watchers());
    }

    /// However many watchers do not read, and whatever their filters: the memory stays within their share, each watcher
    /// that reads gets its part, and every line was received or counted as lost.
    #[test]
    fn watchers_together_stay_within_their_share_and_each_gets_its_part() {
        let peer_memory = memory();
        let share_bytes = peer_memory.limit_bytes() as usize / SHARE_DIVISOR;
        let watchers = Watchers::new(256 << 10, Arc::clone(&peer_memory));
        for serial in 0..1000 {
            assert!(watchers.add(serial, filter("fetchers"), Waker::new().unwrap()).is_some());
        }
        let text = [b'x'; 250];
        let (mut received_lines, mut lost_lines) = (0, 0);
        for number in 0..5000 {
            watchers.publish(kind::FETCHERS, Subject::Any, &text);
            assert!(peer_memory.charged_bytes() as usize <= share_bytes * 3 / 2);
            // One of them reads.
            if number % 4 == 3 {
                let lines = String::from_utf8(watchers.take_lines(7)).unwrap();
                received_lines += lines.lines().filter(|line| line.starts_with("ts=")).count();
                let lost = lines.lines().find_map(|line| line.strip_prefix("skipped="));
                lost_lines += lost.map_or(0, |lost| lost.parse::<usize>().unwrap());
            }
        }
        assert_eq!(received_lines + lost_lines, 5000);
        assert_eq!(lost_lines, 0, "it read before its part was full");
        for serial in 0..1000 {
            watchers.remove(serial);
        }
        assert_eq!((peer_memory.charged_bytes(), lock(&watchers.registered).line_bytes), (0, 0));
    }

    #[test]
    fn many_watchers_get_fewer_heartbeats() {
        let watchers = Watchers::new(256 << 10, memory());
        assert_eq!(watchers.heartbeat_interval(), SEND_INTERVAL);
        for serial in 0..1000 {
            let filter = filter("mutations heartbeat");
            assert!(watchers.add(serial, filter, Waker::new().unwrap()).is_some());
        }
        // However long a heartbeat takes, all of them take their share of a processor.
        for cpu_us in [2, 14, 100] {
            for _ in 0..100 {
                watchers.record_heartbeats(100, Duration::from_micros(100 * cpu_us));
            }
            let heartbeats_per_s = 1000.0 / watchers.heartbeat_interval().as_secs_f64();
            let processor_share = heartbeats_per_s * cpu_us as f64 / 1e6;
            assert!((0.034..0.036).contains(&processor_share), "{cpu_us} us: {processor_share}");
        }
        watchers.record_heartbeats(0, Duration::from_secs(1));
        assert!(watchers.heartbeat_interval() < Duration::from_secs(3), "nothing was sent");
    }

    #[test]
    fn lines_wake_the_worker_only_when_the_watcher_is_urgent() {
        let watchers = Watchers::new(4000, memory());
        let waker = Waker::new().unwrap();
        let watch = watchers.add(1, filter("fetchers"), waker.clone()).unwrap();
        let is_woken = || rustix::io::read(&waker, &mut [0; 8]).is_ok();
        watchers.publish(kind::FETCHERS, Subject::Any, &[b'x'; 500]);
        assert!(!is_woken());
        assert!(watch.has_lines() && !watch.is_urgent());
        watchers.publish(kind::FETCHERS, Subject::Any, &[b'x'; 500]);
        assert!(is_woken());
        assert!(watch.is_urgent());
        waker.clear();
        watchers.publish(kind::FETCHERS, Subject::Any, &[b'x'; 500]);
        assert!(!is_woken(), "the worker knows of it already");
        assert!(watchers.take_lines(1).len() > 1000);
        assert!(!watch.has_lines());
    }

    #[test]
    fn last_lines_are_not_followed_by_a_heartbeat() {
        let watchers = Watchers::new(4000, memory());
        let waker = Waker::new().unwrap();
        assert!(watchers.add(1, filter("fetchers heartbeat"), waker).is_some());
        for (take, has_heartbeat) in [
            (Watchers::take_lines as fn(&Watchers, u64) -> Vec<u8>, true),
            (Watchers::take_final_lines, false),
        ] {
            watchers.publish(kind::FETCHERS, Subject::Any, b"type=item_get");
            let lines = String::from_utf8(take(&watchers, 1)).unwrap();
            assert!(lines.contains("type=item_get"), "{lines}");
            assert_eq!(lines.contains("type=heartbeat"), has_heartbeat, "{lines}");
        }
    }

    #[test]
    fn watcher_of_a_prefix_receives_lines_about_its_keys_and_about_all_keys() {
        let watchers = Watchers::new(256 << 10, memory());
        let arguments = "mutations deletions prefix=a%3A";
        assert!(watchers.add(1, filter(arguments), Waker::new().unwrap()).is_some());
        for (kind, subject, text) in [
            (kind::MUTATIONS, Subject::Key(b"a:1"), "own-key"),
            (kind::MUTATIONS, Subject::Key(b"b:1"), "foreign-key"),
            (kind::DELETIONS, Subject::Prefix(b"a:x"), "own-prefix"),
            (kind::DELETIONS, Subject::Prefix(b"a"), "wider-prefix"),
            (kind::DELETIONS, Subject::Prefix(b"b"), "foreign-prefix"),
            (kind::DELETIONS, Subject::Any, "all-keys"),
            (kind::FETCHERS, Subject::Key(b"a:1"), "other-kind"),
        ] {
            watchers.publish(kind, subject, text.as_bytes());
        }
        let lines = String::from_utf8(watchers.take_lines(1)).unwrap();
        let texts: Vec<_> = lines.lines().filter_map(|line| line.split(' ').nth(2)).collect();
        assert_eq!(texts, ["own-key", "own-prefix", "wider-prefix", "all-keys"]);
    }

    #[test]
    fn heartbeat_follows_every_pending_line() {
        let watchers = Watchers::new(256 << 10, memory());
        assert!(watchers.add(1, filter("mutations heartbeat"), Waker::new().unwrap()).is_some());
        watchers.publish(kind::MUTATIONS, Subject::Any, b"line");
        let lines = String::from_utf8(watchers.take_lines(1)).unwrap();
        assert_eq!(lines.lines().count(), 2);
        let heartbeat = lines.lines().last().unwrap();
        let elapsed_ms = heartbeat.strip_prefix("type=heartbeat ms=").unwrap();
        assert!(elapsed_ms.parse::<u64>().is_ok());
    }

    #[test]
    fn unknown_words_of_watch_are_refused() {
        assert_eq!(WatchFilter::parse(b" mutations everything"), None);
        assert_eq!(filter("").kinds, kind::FETCHERS);
        assert_eq!(filter("prefix=%20b").prefix, b" b");
    }
}
