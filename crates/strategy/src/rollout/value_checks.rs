//! Values that a process served itself, compared with those of the servers.
//!
//! That a value differs is what a near cache is allowed for a while. One that the process still serves when the bound
//! of its age is over since it was found to differ is wrong, whatever time it saves.

use std::fmt;

/// How many of the reads that a process serves itself are compared, unless configured otherwise.
pub const NEAR_CHECK_DEFAULT: f64 = 0.01;

/// Keys to compare that wait for a call which is made anyway; with as many they get one of their own.
pub const WAITING_KEYS_MAX: usize = 32;

/// How many values were compared, and what came out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueChecks {
    /// Values that were compared with those of the servers.
    pub compared: u64,
    /// Those that had been replaced.
    pub differing: u64,
    /// Those of them that were served after the bound.
    pub wrong: u64,
    /// The bound in milliseconds; 0: unknown, as no value was wrong.
    pub bound_ms: u64,
}

impl ValueChecks {
    /// Adds those of another process.
    pub fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        self.differing += other.differing;
        self.wrong += other.wrong;
        self.bound_ms = self.bound_ms.max(other.bound_ms);
    }
}

impl fmt::Display for ValueChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = if self.wrong == 1 { "value" } else { "values" };
        write!(
            f,
            "it served {} {values} that had been replaced longer than {} ms ago, of {} compared with the servers'",
            self.wrong, self.bound_ms, self.compared
        )
    }
}
