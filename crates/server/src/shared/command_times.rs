//! How long commands take inside the server: from the moment at which the event loop learns that a connection has input
//! to the moment at which the reply is handed to the kernel.
//!
//! A worker measures one in a few of the runs of its connections; the commands of one run have one time, because their
//! replies are sent together. What ran in it is known from the counters, so a command that is not measured costs nothing.

use std::time::Duration;

use crate::shared::time_histogram::{TimeHistogram, Times};

/// Runs of connections for each one that is measured, in the mean; a power of two.
const RUNS_PER_SAMPLE: u32 = 16;

/// A percentile is exact within 6 %.
const PARTS_BITS: u32 = 3;

/// The commands that are told apart, over all protocols; each key of a get of many counts.
pub(crate) const COMMANDS: [&str; 5] = ["get", "set", "delete", "arith", "touch"];

/// How many of each of [`COMMANDS`].
pub(crate) type CommandCounts = [u64; COMMANDS.len()];

/// The measured times of one worker.
#[derive(Debug)]
pub(crate) struct CommandTimes([TimeHistogram; COMMANDS.len()]);

impl Default for CommandTimes {
    fn default() -> Self {
        CommandTimes(std::array::from_fn(|_| TimeHistogram::new(PARTS_BITS)))
    }
}

impl CommandTimes {
    /// Adds the time of one run, in which the commands between two counts ran.
    pub(crate) fn record(&self, before: &CommandCounts, after: &CommandCounts, time: Duration) {
        for (histogram, (before, after)) in self.0.iter().zip(before.iter().zip(after)) {
            let count = after.wrapping_sub(*before);
            if count > 0 {
                histogram.record(time, count);
            }
        }
    }

    /// The times of each of [`COMMANDS`], over all workers.
    pub(crate) fn read<'c>(
        workers: &(impl Iterator<Item = &'c CommandTimes> + Clone),
    ) -> [Times; COMMANDS.len()] {
        std::array::from_fn(|command| {
            Times::read(workers.clone().filter_map(|times| times.0.get(command)))
        })
    }
}

/// Chooses the runs that are measured, at random intervals, so that no rhythm of the connections is in step with them.
pub(crate) struct RunSampler {
    runs_left: u32,
    random: u32,
}

impl RunSampler {
    pub(crate) fn new() -> RunSampler {
        RunSampler { runs_left: 1, random: 0x9e37_79b9 }
    }

    /// Begins a run: whether it is measured.
    #[inline]
    pub(crate) fn begin(&mut self) -> bool {
        self.runs_left -= 1;
        if self.runs_left > 0 {
            return false;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        // From 1 to twice the mean, less one.
        self.runs_left = 1 + self.random % (2 * RUNS_PER_SAMPLE - 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_for_each_command_of_its_run() {
        let times = CommandTimes::default();
        times.record(&[7, 1, 0, 2, 0], &[10, 1, 0, 3, 0], Duration::from_micros(20));
        let by_command = CommandTimes::read(&[&times, &CommandTimes::default()].into_iter());
        assert_eq!(by_command.map(|times| times.count()), [3, 0, 0, 1, 0]);
    }

    #[test]
    fn one_in_sixteen_runs_is_measured() {
        let mut sampler = RunSampler::new();
        let measured = (0..160_000).filter(|_| sampler.begin()).count();
        assert!((9_500..10_500).contains(&measured), "{measured}");
    }
}
