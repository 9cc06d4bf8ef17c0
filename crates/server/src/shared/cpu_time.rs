//! The CPU time that a thread has taken.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread since it started.
pub(crate) fn thread_cpu_time() -> Duration {
    cpu_time(ClockId::ThreadCPUTime)
}

/// CPU time of all threads of this process since it started.
pub(crate) fn process_cpu_time() -> Duration {
    cpu_time(ClockId::ProcessCPUTime)
}

fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
