//! The state that all threads of the server see: settings, clock, store, and the registries of workers, connections
//! and watchers.
//!
//! The server is *observed* while a watcher is connected or `stats detail` counts prefixes: then the request path
//! reports what it does.

pub(crate) mod address;
pub(crate) mod attempt_queue;
pub(crate) mod cancellation;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod command_times;
pub(crate) mod config;
pub(crate) mod connection_info;
pub(crate) mod connections;
pub(crate) mod control_channel;
pub(crate) mod control_socket;
pub(crate) mod counters;
pub(crate) mod cpu_time;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod fields;
pub(crate) mod file_version;
pub(crate) mod fill_times;
pub(crate) mod handover;
pub(crate) mod held_memory;
pub(crate) mod http_token;
pub(crate) mod key_text;
pub(crate) mod live;
pub(crate) mod lock;
pub(crate) mod log;
pub(crate) mod log_output;
pub(crate) mod logins;
pub(crate) mod memory_file;
pub(crate) mod password_hash;
pub(crate) mod peer_memory;
pub(crate) mod phases;
pub(crate) mod prefix_table;
pub(crate) mod progress_counter;
pub(crate) mod sizes;
pub(crate) mod slab_classes;
pub(crate) mod slots;
pub(crate) mod slow_commands;
pub(crate) mod source;
pub(crate) mod stalled;
pub(crate) mod time_histogram;
pub(crate) mod tls;
pub(crate) mod tls_charge;
pub(crate) mod tls_memory;
pub(crate) mod tuning;
pub(crate) mod unix_socket;
pub(crate) mod users;
pub(crate) mod version;
pub(crate) mod wake;
pub(crate) mod watchers;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use glasscache_store::{Counters as StoreCounters, Store};

use crate::shared::address::Address;
use crate::shared::clock::Clock;
use crate::shared::cluster::Cluster;
use crate::shared::command_times::{COMMANDS, CommandTimes};
use crate::shared::config::{Config, Listen, random_seed};
use crate::shared::connections::Connections;
use crate::shared::counters::{Counter, Counters, ITERATION_TIME_BUCKETS, Totals};
use crate::shared::fill_times::FillTimes;
use crate::shared::held_memory::{MarkedForClose, ParkedConnections};
use crate::shared::http_token::HttpToken;
use crate::shared::live::Live;
use crate::shared::lock::lock;
use crate::shared::log::{Log, LogKind};
use crate::shared::logins::Logins;
use crate::shared::peer_memory::PeerMemory;
use crate::shared::phases::Phases;
use crate::shared::prefix_table::PrefixTable;
use crate::shared::slab_classes::SlabClassTable;
use crate::shared::slow_commands::{SlowCommand, SlowCommands, WaitReason};
use crate::shared::time_histogram::Times;
use crate::shared::tls::Tls;
use crate::shared::tuning::Tuning;
use crate::shared::version::Version;
use crate::shared::wake::Waker;
use crate::shared::watchers::{Watchers, kind};

/// The state that the threads of one server share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) version: Version,
    pub(crate) clock: Clock,
    pub(crate) store: Arc<Store>,
    pub(crate) slab_classes: SlabClassTable,
    pub(crate) prefix_table: PrefixTable,
    /// The nodes that `config get cluster` reports.
    pub(crate) cluster: Cluster,
    /// The users, and attempts to log in.
    pub(crate) logins: Logins,
    /// The certificate, if there are listeners with TLS.
    pub(crate) tls: Option<Tls>,
    /// The token of requests over HTTP, if they need one.
    pub(crate) http_token: Option<HttpToken>,
    pub(crate) watchers: Watchers,
    /// What is reported of the load.
    pub(crate) live: Live,
    /// How long clients take to make misses good.
    pub(crate) fill_times: FillTimes,
    /// The slowest commands.
    pub(crate) slow_commands: SlowCommands,
    pub(crate) log: Log,
    pub(crate) tuning: Tuning,
    pub(crate) connections: Connections,
    /// Each worker's counters and waker.
    pub(crate) counters_and_wakers: Vec<(Arc<Counters>, Waker)>,
    /// The listening addresses, and the descriptor of each socket.
    pub(crate) addresses: Vec<(i32, Address)>,
    /// How much is logged on stderr.
    pub(crate) verbosity: AtomicU8,
    /// Whether there are watchers or prefixes are counted, so that the request path must report.
    is_observed: AtomicBool,
    /// Whether reads are watched or prefixes are counted, so that a read must report.
    are_reads_observed: AtomicBool,
    /// The memory outside of the store that connections may hold.
    pub(crate) peer_memory: Arc<PeerMemory>,
    /// Connections that are marked for close, because they hold memory that others need.
    pub(crate) marked_for_close: MarkedForClose,
    /// Connections that wait for memory that others hold.
    pub(crate) parked_connections: ParkedConnections,
    /// Whether it serves, pauses or ends.
    pub(crate) phases: Phases,
    /// Whether the items are saved when it has stopped.
    saves_at_stop: AtomicBool,
    /// What `stats reset` subtracts.
    baseline: Mutex<Baseline>,
    /// Wakes the thread that waits for the server to stop.
    pub(crate) listener_waker: Waker,
    /// Wakes the thread that waits for a successor.
    pub(crate) control_waker: Waker,
}

impl Shared {
    pub(crate) fn new(parts: SharedParts) -> Shared {
        let SharedParts {
            config,
            clock,
            store,
            slab_classes,
            cluster,
            logins,
            tls,
            http_token,
            counters_and_wakers,
            addresses,
            listener_waker,
            control_waker,
            log,
        } = parts;
        let wakers = counters_and_wakers.iter().map(|(_, waker)| waker.clone()).collect();
        let peer_memory = PeerMemory::new(Arc::clone(&store), wakers);
        let shared = Shared {
            clock,
            prefix_table: PrefixTable::new(
                config.detail_enabled,
                config.prefix_delimiter,
                Arc::clone(&store),
            ),
            watchers: Watchers::new(config.watcher_bytes, Arc::clone(&peer_memory)),
            tuning: Tuning::new(&config),
            connections: Connections::default(),
            live: Live::default(),
            fill_times: FillTimes::new(),
            slow_commands: SlowCommands::new(config.slow_ms),
            verbosity: AtomicU8::new(config.verbosity),
            is_observed: AtomicBool::new(false),
            are_reads_observed: AtomicBool::new(false),
            peer_memory,
            marked_for_close: MarkedForClose::default(),
            parked_connections: ParkedConnections::default(),
            phases: Phases::default(),
            saves_at_stop: AtomicBool::new(false),
            baseline: Mutex::default(),
            version: Version::new(config.commit),
            config,
            store,
            slab_classes,
            cluster,
            logins,
            tls,
            http_token,
            counters_and_wakers,
            addresses,
            listener_waker,
            control_waker,
            log,
        };
        shared.update_is_observed();
        shared
    }

    /// Whether lines of this verbosity are logged: 1 for `-v`, 2 for `-vv`.
    #[inline]
    pub(crate) fn logs_at(&self, verbosity: u8) -> bool {
        // LOSSY: a line may be missed right after a client changed the verbosity.
        self.verbosity.load(Ordering::Relaxed) >= verbosity && self.log.is_on()
    }

    /// Whether connections of this listener are served statistics alone.
    pub(crate) fn serves_statistics_only(&self, listener_index: usize) -> bool {
        self.config.listeners.get(listener_index).is_some_and(Listen::serves_statistics_only)
    }

    /// The seed of the order of a listing of the items: random and independent, so that the order reveals nothing
    /// about the seed of the key hash; fixed if that seed is.
    pub(crate) fn listing_seed(&self) -> u64 {
        self.config.hash_seed.unwrap_or_else(random_seed)
    }

    /// Whether the request path must report to watchers or count prefixes.
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        // LOSSY: a command may be missed right after a watcher was added.
        self.is_observed.load(Ordering::Relaxed)
    }

    /// Whether reads are reported to watchers or counted by prefix.
    #[inline]
    pub(crate) fn are_reads_observed(&self) -> bool {
        self.are_reads_observed.load(Ordering::Relaxed)
    }

    /// Updates whether the request path must report, after watchers or prefix counting changed.
    pub(crate) fn update_is_observed(&self) {
        let is_observed = self.prefix_table.is_on() || self.watchers.has_watchers();
        self.is_observed.store(is_observed, Ordering::Relaxed);
        let are_reads_observed =
            self.prefix_table.is_on() || self.watchers.is_watched(kind::FETCHERS);
        self.are_reads_observed.store(are_reads_observed, Ordering::Relaxed);
        self.store.report_evictions(self.watchers.is_watched(kind::EVICTIONS));
    }

    /// Makes all threads stop; they complete begun requests first.
    pub(crate) fn stop(&self) {
        self.phases.stop();
        self.control_waker.wake();
        self.wake_all();
    }

    /// Wakes the serving threads, so that they check the phase.
    pub(crate) fn wake_all(&self) {
        self.listener_waker.wake();
        for (_, waker) in &self.counters_and_wakers {
            waker.wake();
        }
    }

    /// Makes all threads stop, and the items be saved if there is a memory file.
    pub(crate) fn stop_and_save(&self) {
        self.saves_at_stop.store(true, Ordering::Release);
        self.stop();
    }

    /// Whether the items are to be saved; read when all threads have ended.
    pub(crate) fn saves_at_stop(&self) -> bool {
        self.saves_at_stop.load(Ordering::Acquire)
    }

    /// All workers' counts since the start or the last `stats reset`.
    pub(crate) fn totals(&self) -> Totals {
        self.lifetime_totals().difference_since(&lock(&self.baseline).totals)
    }

    /// All workers' counts since the start.
    pub(crate) fn lifetime_totals(&self) -> Totals {
        let mut totals = Totals::default();
        for (counters, _) in &self.counters_and_wakers {
            totals.add(counters);
        }
        totals
    }

    /// `stats reset`: the counts so far are no longer reported.
    pub(crate) fn reset_stats(&self) {
        *lock(&self.baseline) =
            Baseline { totals: self.lifetime_totals(), store_counters: self.store.counters() };
        for (counters, _) in &self.counters_and_wakers {
            counters.iteration_us_max.clear();
            counters.iteration_cpu_us_max.clear();
            counters.iteration_examined_max.clear();
        }
    }

    /// The contents of the store, and what it counted since the start or the last `stats reset`.
    pub(crate) fn store_counters(&self) -> StoreCounters {
        self.store.counters().since(&lock(&self.baseline).store_counters)
    }

    /// Memory in use inside the limit. Without items it is 0, though the index keeps its first segment; what the store
    /// has beside the limit, so that a write need not wait for an eviction, counts as full.
    pub(crate) fn used_bytes(&self, counters: &StoreCounters) -> u64 {
        if counters.items == 0 {
            return 0;
        }
        let used_bytes = counters.segment_bytes + counters.index_bytes + counters.buffer_bytes;
        used_bytes.min(self.tuning.get().memory_bytes)
    }

    /// How long commands take inside the server, by command.
    pub(crate) fn command_times(&self) -> [Times; COMMANDS.len()] {
        let workers = self.counters_and_wakers.iter();
        CommandTimes::read(&workers.map(|(counters, _)| &counters.command_times))
    }

    /// Records a slow command, and logs it unless its client alone was slow: that is for `-v`.
    pub(crate) fn record_slow(&self, slow: SlowCommand) {
        if slow.reason != WaitReason::Socket || self.logs_at(1) {
            let now_s = slow.ended_at.0;
            self.log.queue_line_rate_limited(LogKind::SlowCommand, now_s, || slow.describe());
        }
        self.slow_commands.record(slow);
    }

    /// How many iterations of all workers took less than this many microseconds, and at least the previous bound.
    pub(crate) fn iteration_times(&self) -> Vec<(u64, u64)> {
        (0..ITERATION_TIME_BUCKETS)
            .map(|bucket_index| {
                let bucket_count = |counters: &Counters| {
                    counters.iteration_times.get(bucket_index).map(Counter::get)
                };
                let count = self
                    .counters_and_wakers
                    .iter()
                    .filter_map(|(counters, _)| bucket_count(counters))
                    .sum();
                (1 << bucket_index, count)
            })
            .collect()
    }
}

/// The counts that were reached at the last `stats reset`.
#[derive(Default)]
struct Baseline {
    totals: Totals,
    store_counters: StoreCounters,
}

/// The parts of [`Shared`].
pub(crate) struct SharedParts {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) store: Arc<Store>,
    pub(crate) slab_classes: SlabClassTable,
    pub(crate) cluster: Cluster,
    pub(crate) logins: Logins,
    pub(crate) tls: Option<Tls>,
    pub(crate) http_token: Option<HttpToken>,
    pub(crate) counters_and_wakers: Vec<(Arc<Counters>, Waker)>,
    pub(crate) addresses: Vec<(i32, Address)>,
    pub(crate) listener_waker: Waker,
    pub(crate) control_waker: Waker,
    pub(crate) log: Log,
}
