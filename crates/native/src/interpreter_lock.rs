//! Reacquiring the interpreter lock: a thread that has just taken it gets a moment to release it again.
//!
//! Threads that do little but call the client hold the lock for a few microseconds between two calls, and CPython's way
//! to wait for it is a mutex and a condition: some four system calls each time it is found taken, half of them by the
//! thread that is about to send its request. So a thread that returns from a call first checks whether another returned
//! a moment ago and has not begun its next call: that one is the holder. If so it spins until the holder has begun a
//! call, or the moment is over; then it waits like any thread (docs/decisions/python.md, 0055).
//!
//! LOSSY: nothing depends on the holder. An old one is ignored, whether its thread is gone, busy, or on the other side
//! of a fork.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use pyo3::Python;

/// Nanoseconds for which a holder is respected: longer than a short loop holds the lock between two calls, shorter
/// than what sleeping and being woken would take.
const HOLD_NS: u64 = 10_000;

/// Nanoseconds after which a thread waits for no more holders: they may follow each other.
const WAIT_NS_MAX: u64 = 4 * HOLD_NS;

/// Nanoseconds without holders after one was found old: its thread does more than call the client, or
/// there are more threads than processors, and waiting for it is in vain.
const NO_HOLDER_NS: u64 = 200_000;

/// Pauses between two reads of the holder, so that its own write is not slowed down by waiting threads.
const SPIN_PAUSES: usize = 8;

/// Since when the current holder is one, in nanoseconds since [`set_time_origin`]; 0: there is none.
///
/// Relaxed here and below: no memory is guarded by it, the interpreter lock does that.
static HOLDER_SINCE: AtomicU64 = AtomicU64::new(0);

/// Until when there are no holders.
static NO_HOLDER_UNTIL: AtomicU64 = AtomicU64::new(0);

/// The address of a thread-local value of the first thread that made a call; 0: none has.
static FIRST_THREAD_ADDRESS: AtomicUsize = AtomicUsize::new(0);

/// Another thread has made one too; until then there is no contention.
static HAS_SEVERAL_THREADS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// When this thread became the holder last; 0: not since its last call.
    static HELD_SINCE: Cell<u64> = const { Cell::new(0) };
}

/// Does `work` without the interpreter lock, and takes it back after the current holder.
pub(crate) fn run_detached<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
    if !has_several_threads() {
        return py.detach(work);
    }
    stop_holding();
    py.detach(|| {
        let result = work();
        become_holder();
        result
    })
}

fn has_several_threads() -> bool {
    if HAS_SEVERAL_THREADS.load(Ordering::Relaxed) {
        return true;
    }
    let own_address = HELD_SINCE.with(|cell| std::ptr::from_ref(cell).addr());
    if FIRST_THREAD_ADDRESS.load(Ordering::Relaxed) == own_address {
        return false; // as nearly always, without an exchange, which takes as long as twenty other instructions
    }
    let exchange_result =
        FIRST_THREAD_ADDRESS.compare_exchange(0, own_address, Ordering::Relaxed, Ordering::Relaxed);
    if exchange_result.is_err_and(|first_address| first_address != own_address) {
        HAS_SEVERAL_THREADS.store(true, Ordering::Relaxed);
    }
    false
}

/// Ends being the holder, if this thread is.
fn stop_holding() {
    let held_since = HELD_SINCE.replace(0);
    if held_since != 0 {
        change_holder(held_since, 0); // another thread that has taken over stays the holder
    }
}

/// Becomes the holder once the previous one has left, or is old.
fn become_holder() {
    let mut now = now_ns();
    if now < NO_HOLDER_UNTIL.load(Ordering::Relaxed) {
        return;
    }
    let wait_started = now;
    loop {
        let holder_since = HOLDER_SINCE.load(Ordering::Relaxed);
        let is_old = holder_since != 0 && now.saturating_sub(holder_since) >= HOLD_NS;
        if is_old || now - wait_started >= WAIT_NS_MAX {
            NO_HOLDER_UNTIL.store(now + NO_HOLDER_NS, Ordering::Relaxed);
            change_holder(holder_since, 0);
            return;
        }
        if holder_since == 0 && change_holder(0, now) {
            return HELD_SINCE.set(now);
        }
        (0..SPIN_PAUSES).for_each(|_| std::hint::spin_loop());
        now = now_ns();
    }
}

/// Changes the holder's time to `new` if it is still `expected`.
fn change_holder(expected: u64, new: u64) -> bool {
    HOLDER_SINCE.compare_exchange(expected, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// The zero of all times. Set before there are threads, so that no fork can interrupt it.
static TIME_ORIGIN: OnceLock<Instant> = OnceLock::new();

/// Sets the zero of all times; to be called before the first call.
pub(crate) fn set_time_origin() {
    TIME_ORIGIN.get_or_init(Instant::now);
}

/// Nanoseconds since [`set_time_origin`], and never 0.
fn now_ns() -> u64 {
    TIME_ORIGIN.get().map_or(0, |origin| origin.elapsed().as_nanos() as u64) + 1
}
