//! The thread that evaluates the load: it takes what the workers sampled and publishes a report once a second.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use glasscache_store::{LiveInput, LiveModel};
use rustix::time::{ClockId, clock_gettime};

use crate::shared::Shared;

/// Time between two steps while there are events: a worker's ring holds as many as it samples meanwhile.
const BUSY_INTERVAL: Duration = Duration::from_millis(25);

/// The same while there are none: what comes first after a rest must not be lost either.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);

/// Evaluates the load until `stop_receiver` is closed.
pub(crate) fn run(shared: &Shared, stop_receiver: &Receiver<()>) {
    let started_at = Instant::now();
    let mut model = LiveModel::new(
        &shared.store,
        shared.config.prefix_delimiter,
        read_input(shared, started_at),
    );
    let mut interval = BUSY_INTERVAL;
    while stop_receiver.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        let (event_count, report) = model.step(read_input(shared, started_at));
        interval = if event_count > 0 { BUSY_INTERVAL } else { IDLE_INTERVAL };
        if let Some(report) = report {
            shared.live.publish(report);
        }
    }
}

fn read_input(shared: &Shared, started_at: Instant) -> LiveInput {
    let totals = shared.lifetime_totals();
    let gets = totals.get_cmds + totals.touch_cmds;
    LiveInput {
        now: shared.clock.now(),
        elapsed_ms: started_at.elapsed().as_millis() as u64,
        gets,
        misses: gets.saturating_sub(totals.get_hits + totals.touch_hits),
        miss_time_us: shared.fill_times.mean_us(),
        cpu_us: cpu_us(ClockId::ThreadCPUTime),
        process_cpu_us: cpu_us(ClockId::ProcessCPUTime),
    }
}

fn cpu_us(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}
