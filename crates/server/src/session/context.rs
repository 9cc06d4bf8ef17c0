//! What a session needs to execute commands: the store, the current second, the counters, the state of the server.

use std::cell::Cell;

use glasscache_store::{CasUnique, Expiry, Item, NoRoomYet, Seconds, Worker};

use crate::session::output::Output;
use crate::shared::Shared;
use crate::shared::connection_info::ConnectionInfo;
use crate::shared::counters::Counters;
use crate::shared::peer_memory::Pressure;
use crate::shared::sizes::{SLICE_BYTES, SLICE_BYTES_BY_REFERENCE, SLICE_BYTES_HIGH_PRESSURE};
use crate::shared::wake::Waker;

/// What one run of one session needs besides its input and output.
#[derive(Clone, Copy)]
pub(crate) struct Context<'w> {
    /// This thread's handle on the store.
    pub(crate) store_worker: &'w Worker,
    /// The server.
    pub(crate) shared: &'w Shared,
    /// This thread's counters.
    pub(crate) counters: &'w Counters,
    /// The second in which it runs.
    pub(crate) now: Seconds,
    /// The connection that is served.
    pub(crate) connection: &'w ConnectionInfo,
    /// Wakes this thread.
    pub(crate) waker: &'w Waker,
    /// Bytes that a connection may send before others are served.
    pub(crate) quota_bytes: usize,
    /// How short memory for peers was when the run began.
    pub(crate) pressure: Pressure,
    /// Whether the connection is the first of those that wait for memory.
    pub(crate) is_first_waiter: bool,
    /// Whether it has waited for memory for so long that it is served without.
    pub(crate) is_overdue: bool,
    /// Whether input of the connection cannot be left in its socket, as it has TLS.
    pub(crate) is_tls: bool,
    /// Whether an incomplete command, for which no memory was granted, is refused.
    pub(crate) refuses_incomplete: &'w Cell<bool>,
    /// Whether commands and replies are logged.
    pub(crate) logs_commands: bool,
    /// Whether the connection has waited for a segment for the maximum time: then one write that finds none is refused.
    pub(crate) may_refuse: &'w Cell<bool>,
}

impl Context<'_> {
    /// Whether there is so much output that it is sent before more is made.
    ///
    /// Values that are sent from where they lie fill a slice later than rendered bytes, because each call of the
    /// kernel that sends a part wakes the reader; but not while memory is short or small requests wait behind them.
    #[inline]
    pub(crate) fn is_output_full(&self, out: &Output<'_>) -> bool {
        let slice_bytes = match self.pressure {
            Pressure::High => SLICE_BYTES_HIGH_PRESSURE,
            _ => SLICE_BYTES,
        };
        out.len() >= slice_bytes
            && (out.bytes.len() >= slice_bytes
                || self.pressure != Pressure::Low
                || out.len() >= self.quota_bytes.min(SLICE_BYTES_BY_REFERENCE))
    }

    /// Whether an incomplete value is received into the store although it is small: while memory is short, input that
    /// cannot stay in its socket is best kept there.
    pub(crate) fn uploads_early(&self, key_bytes: usize, value_bytes: usize) -> bool {
        let store = self.store_worker.store();
        self.is_tls
            && self.pressure == Pressure::High
            && store.receives_in_pieces(key_bytes, value_bytes)
            && store.has_room_for_small_upload(value_bytes)
    }

    /// The result of a write. If there was no free segment the connection has to wait, unless it has waited for the
    /// maximum time: then `execute_without_waiting` gives the result.
    #[inline]
    pub(crate) fn stop_waiting_if_overdue<T>(
        &self,
        result: Result<T, NoRoomYet>,
        execute_without_waiting: impl FnOnce() -> T,
    ) -> Result<T, NoRoomYet> {
        match result {
            Err(NoRoomYet) if self.may_refuse.take() => Ok(execute_without_waiting()),
            result => result,
        }
    }

    /// The expiry that an exptime in a request means now.
    #[inline]
    pub(crate) fn expiry(&self, exptime: i64) -> Expiry {
        if exptime == 0 { Expiry::Never } else { self.shared.clock.expiry(exptime, self.now) }
    }

    /// Whether `unique` equals the CAS unique of the item that clients see.
    pub(crate) fn is_visible_unique(&self, item: &Item<'_>, unique: u64) -> bool {
        if self.shared.config.cas_enabled {
            item.has_unique(CasUnique(unique))
        } else {
            unique == 0
        }
    }

    /// The CAS unique that clients see: 0 when uniques are off.
    #[inline]
    pub(crate) fn visible_unique(&self, unique: CasUnique) -> u64 {
        if self.shared.config.cas_enabled { unique.0 } else { 0 }
    }
}

/// Seconds left until `expiry`; `None` if it never expires.
#[inline]
pub(crate) fn ttl_s(expiry: Expiry, now: Seconds) -> Option<u32> {
    match expiry {
        Expiry::Never => None,
        Expiry::At(expires_at) => Some(expires_at.0.saturating_sub(now.0)),
    }
}
