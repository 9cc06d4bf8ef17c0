//! Counters of a worker, without a lock: one writer, any reader.
//!
//! Only the owner writes, so a load and a store are enough and no locked instruction is needed; a reader may see
//! related counters at slightly different times, which memcached's reader does not. `stats` adds up the workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::shared::command_times::{CommandCounts, CommandTimes};
use crate::shared::progress_counter::ProgressCounter;

/// A count with one writing thread.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one; only the owner may call this.
    #[inline]
    pub(crate) fn bump(&self) {
        self.add(1);
    }

    /// Adds `amount`; only the owner may call this.
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Raises it to `value` if that is larger; only the owner may call this.
    #[inline]
    pub(crate) fn raise(&self, value: u64) {
        if value > self.get() {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    /// Sets it to 0; any thread may call this.
    // LOSSY: a change that the owner makes at the same moment may undo it.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// Bytes received and sent.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.bytes_read.get() + self.bytes_written.get()
    }

    /// How many commands of each kind the worker has executed.
    pub(crate) fn command_counts(&self) -> CommandCounts {
        [
            self.get_cmds.get(),
            self.set_cmds.get(),
            self.delete_hits.get() + self.delete_misses.get(),
            self.incr_hits.get()
                + self.incr_misses.get()
                + self.decr_hits.get()
                + self.decr_misses.get(),
            self.touch_cmds.get(),
        ]
    }

    /// Records how long an iteration of the worker's loop took.
    pub(crate) fn record_iteration_time(&self, time: Duration) {
        let time_us = time.as_micros() as u64;
        self.iteration_us.add(time_us);
        self.iteration_us_max.raise(time_us);
        let bucket_index = (u64::BITS - time_us.leading_zeros()) as usize;
        if let Some(bucket) = self.iteration_times.get(bucket_index.min(ITERATION_TIME_BUCKETS - 1))
        {
            bucket.bump();
        }
    }

    /// Records how long a run took before which so many commands of each kind had been executed.
    pub(crate) fn record_run_time(&self, counts_before: &CommandCounts, time: Duration) {
        self.command_times.record(counts_before, &self.command_counts(), time);
    }
}

/// Operations on the items of one class by one worker.
#[derive(Debug, Default)]
pub(crate) struct ClassCounters {
    pub(crate) get_hits: Counter,
    pub(crate) set_cmds: Counter,
    pub(crate) touch_hits: Counter,
    pub(crate) delete_hits: Counter,
    pub(crate) incr_hits: Counter,
    pub(crate) decr_hits: Counter,
    pub(crate) cas_hits: Counter,
    pub(crate) cas_badval: Counter,
}

/// The histogram of iteration times distinguishes up to 2 to the power of this many microseconds, less one.
pub(crate) const ITERATION_TIME_BUCKETS: usize = 20;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters of one worker.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: Counter,)*
            /// Counters by memcached's slab class, which counts from 1.
            pub(crate) by_class: Vec<ClassCounters>,
            /// Iterations of the event loop by the power of two above their microseconds.
            pub(crate) iteration_times: [Counter; ITERATION_TIME_BUCKETS],
            /// Microseconds of the longest iteration of the event loop.
            pub(crate) iteration_us_max: Counter,
            /// The same in CPU time of the thread; measured only under `debug`.
            pub(crate) iteration_cpu_us_max: Counter,
            /// Maximum number of items, connections and prefixes that one iteration examined for long replies.
            pub(crate) iteration_examined_max: Counter,
            /// How long commands take.
            pub(crate) command_times: CommandTimes,
            /// Whether the worker makes progress.
            pub(crate) progress_counter: ProgressCounter,
        }

        /// The counters of all workers, added up.
        #[derive(Debug, Default, Clone)]
        pub(crate) struct Totals { $($(#[$doc])* pub(crate) $name: u64),* }

        impl Totals {
            /// Adds one worker's counts.
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.get());)*
            }

            /// The difference to `earlier` (`stats reset` keeps a copy to subtract).
            pub(crate) fn difference_since(&self, earlier: &Totals) -> Totals {
                Totals { $($name: self.$name.wrapping_sub(earlier.$name)),* }
            }
        }
    };
}

counters! {
    /// Keys requested by `get`, `gets` and `mg`.
    get_cmds,
    /// Of these keys, those that were found.
    get_hits,
    /// Storage commands.
    set_cmds,
    /// Flushes of everything.
    flush_cmds,
    /// Flushes of a prefix.
    flush_prefix_cmds,
    /// `touch`, `gat` and `gats` commands.
    touch_cmds,
    /// Of these keys, those that were found.
    touch_hits,
    /// `me` commands.
    meta_cmds,
    /// Deletions of a missing item.
    delete_misses,
    /// Deletions of an item.
    delete_hits,
    /// Increments of a missing item.
    incr_misses,
    /// Increments of an item.
    incr_hits,
    /// Decrements of a missing item.
    decr_misses,
    /// Decrements of an item.
    decr_hits,
    /// `cas` on a missing item.
    cas_misses,
    /// `cas` whose unique matched.
    cas_hits,
    /// `cas` whose unique did not match.
    cas_badval,
    /// Bytes received.
    bytes_read,
    /// Bytes sent.
    bytes_written,
    /// Times that a connection yielded to others.
    conn_yields,
    /// Values refused because they were too large.
    store_too_large,
    /// Values refused because there was no memory.
    store_no_memory,
    /// Connections closed because they were idle for too long.
    idle_kicks,
    /// Times a full batch of lookups was prefetched.
    batches,
    /// Receive calls.
    recv_calls,
    /// Send calls.
    send_calls,
    /// Iterations of the event loop.
    iterations,
    /// Microseconds of all these iterations.
    iteration_us,
    /// Items, connections and prefixes examined for long replies.
    examined,
    /// Connections closed because they held memory that others waited for and made no progress.
    stalled_closed,
    /// Times a connection had to wait for memory that peers may hold.
    memory_waits,
    /// Connections closed because they speak the binary protocol, which `-B ascii` excludes.
    binary_refused,
    /// Times a connection that waits for room for an upload tried again.
    upload_tries,
    /// Attempts to log in.
    auth_cmds,
    /// Attempts to log in that failed.
    auth_errors,
    /// Connections closed because they did not log in in time.
    login_timeouts,
    /// Broken invariants, each of which closed a connection.
    invariant_broken,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_workers_up_and_reset_subtracts() {
        let (one, two) = (Counters::default(), Counters::default());
        one.get_cmds.add(3);
        two.get_cmds.bump();
        let mut totals = Totals::default();
        totals.add(&one);
        totals.add(&two);
        assert_eq!(totals.get_cmds, 4);
        assert_eq!(totals.difference_since(&totals).get_cmds, 0);
    }
}
