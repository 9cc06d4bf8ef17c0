//! The figures of one server that the rules read; what is not known is `None` or empty.

use crate::connections::Connections;
use crate::counters::Counters;
use crate::curve::Curve;
use crate::key_sample::KeySample;

/// The figures of one server.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// The general counters now.
    pub now: Counters,
    /// What was counted in the observed interval; its length in [`Figures::seconds`].
    pub recent: Option<Counters>,
    /// Length of the observed interval in seconds.
    pub seconds: f64,
    /// How long the last evicted item had not been used, in seconds.
    pub eviction_age_s: Option<u64>,
    /// Whether a new connection was refused because all that `-c` allows are open; nothing else is known then.
    pub refuses_connections: bool,
    /// The connections of clients.
    pub connections: Option<Connections>,
    /// The hottest keys of the observed interval, the hottest first.
    pub hot_keys: Vec<HotKey>,
    /// A sample of the keys.
    pub key_sample: Option<KeySample>,
    /// The curve of the server's own policy.
    pub curve: Option<Curve>,
    /// What the kernel reports of the server's process.
    pub machine: Option<Machine>,
}

/// A key that is requested often.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKey {
    /// The key as it can be printed.
    pub key: String,
    /// How often it was requested.
    pub requests: u64,
    /// Of all requests for keys in the same time, 0 to 1.
    pub share: f64,
}

/// What the kernel reports of the server's process and its machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Machine {
    /// Memory of the process that is in swap (`VmSwap`), in bytes.
    pub swapped_bytes: u64,
    /// Memory of the process that is resident (`VmRSS`), in bytes.
    pub resident_bytes: u64,
    /// Pages read back from swap in the observed interval, of all processes (`pswpin`).
    pub pages_swapped_in: u64,
}

impl Machine {
    /// Reads `VmSwap` and `VmRSS` from the text of `/proc/PID/status` (`proc_pid_status(5)`).
    pub fn of_status(status: &str) -> Machine {
        Machine {
            swapped_bytes: find_kilobytes(status, "VmSwap:") * 1024,
            resident_bytes: find_kilobytes(status, "VmRSS:") * 1024,
            pages_swapped_in: 0,
        }
    }
}

/// The number of a line `NAME 1234 kB`; 0 where it is missing.
fn find_kilobytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The least requests of an interval from which a rule draws a conclusion.
const REQUESTS_MIN: u64 = 100;

impl Figures {
    /// The counters to reason about, and the seconds in which they were counted: those of the observed interval, or
    /// since the start where the interval had few requests.
    pub(crate) fn counted(&self) -> (&Counters, f64) {
        let recent = self.recent.as_ref().filter(|recent| recent.operations() >= REQUESTS_MIN);
        match recent {
            Some(recent) => (recent, self.seconds.max(0.001)),
            None => (&self.now, self.now.uptime_s.max(1) as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_process_has_its_swap() {
        let machine =
            Machine::of_status("Name:\tmemcached\nVmRSS:\t  2048 kB\nVmSwap:\t   512 kB\n");
        assert_eq!((machine.swapped_bytes, machine.resident_bytes), (512 << 10, 2048 << 10));
        assert_eq!(Machine::of_status("VmSwap:\nnonsense"), Machine::default());
    }

    #[test]
    fn an_interval_without_load_counts_since_the_start() {
        let now = Counters { gets: 5000, uptime_s: 50, ..Counters::default() };
        let mut figures = Figures { now, seconds: 2.0, ..Figures::default() };
        figures.recent = Some(Counters { gets: 10, ..Counters::default() });
        assert_eq!((figures.counted().0.gets, figures.counted().1), (5000, 50.0));
        figures.recent = Some(Counters { gets: 100, ..Counters::default() });
        assert_eq!((figures.counted().0.gets, figures.counted().1), (100, 2.0));
    }
}
