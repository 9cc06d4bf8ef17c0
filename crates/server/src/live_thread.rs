//! The thread that evaluates the load: it takes what the workers sampled and publishes a report once a second.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use glasscache_store::tuning::Goal;
use glasscache_store::{LiveInput, LiveModel, LiveReport, PolicyReport, PolicySwitch};

use crate::shared::Shared;
use crate::shared::cpu_time::{process_cpu_time, thread_cpu_time};
use crate::shared::log_output::LogLevel;

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
        shared.config.tuning_goal,
        read_input(shared, started_at),
    );
    shared.live.publish(LiveReport { policy: model.policy(), ..LiveReport::default() });
    let mut interval = BUSY_INTERVAL;
    while stop_receiver.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        let (event_count, report) = model.step(read_input(shared, started_at));
        interval = if event_count > 0 { BUSY_INTERVAL } else { IDLE_INTERVAL };
        if let Some(report) = report {
            log_switches(shared, &shared.live.report().policy, &report.policy);
            shared.live.publish(report);
        }
    }
}

/// Logs the changes of the policy's settings since the last report, a line each.
fn log_switches(shared: &Shared, before: &PolicyReport, now: &PolicyReport) {
    let goal = now.goal.unwrap_or_default();
    let new_count = now.switches.saturating_sub(before.switches) as usize;
    for switch in now.last_switches.iter().take(new_count).rev() {
        shared
            .log
            .queue_line(LogLevel::Info, format!("glasscache: policy: {}", describe(switch, goal)));
    }
}

/// A change of the settings in a line.
fn describe(switch: &PolicySwitch, goal: Goal) -> String {
    let saving = match goal {
        Goal::Objects => "fewer misses are",
        Goal::Bytes => "fewer missed bytes are",
        Goal::Time => "less time of misses is",
    };
    match switch.record.forecast() {
        Some((gain, error)) => format!(
            "{} instead of {}: {}; {:.1} % {saving} expected ({:.1} to {:.1} %)",
            switch.to,
            switch.from,
            switch.record.reason,
            100.0 * gain,
            100.0 * (gain - error),
            100.0 * (gain + error)
        ),
        None => {
            format!("back to {} from {}: {}", switch.to, switch.from, switch.record.reason)
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
        cpu_us: thread_cpu_time().as_micros() as u64,
        process_cpu_us: process_cpu_time().as_micros() as u64,
    }
}

#[cfg(test)]
mod tests {
    use glasscache_store::tuning::{Outcome, PolicySettings, SwitchReason, SwitchRecord};

    use super::*;

    #[test]
    fn a_change_of_the_settings_is_a_line_with_what_is_expected() {
        let record = SwitchRecord {
            requests: 1000,
            now_s: Some(60),
            from: 0,
            to: 3,
            reason: SwitchReason::Better,
            expected: 0.1,
            error: 0.025,
            came: Outcome::default(),
            is_undone: false,
        };
        let [from, to] = [0, 3].map(PolicySettings::of_candidate);
        let switch = PolicySwitch { from, to, age_s: 0, record };
        let line = describe(&switch, Goal::Objects);
        assert!(
            line.starts_with(
                "small=5%,main=1,ghost-main=0,ghost=50%,skip=30% instead of small=10%,"
            )
        );
        assert!(line.ends_with("10.0 % fewer misses are expected (7.5 to 12.5 %)"), "{line}");
        assert!(describe(&switch, Goal::Bytes).contains("10.0 % fewer missed bytes are expected"));
        assert!(describe(&switch, Goal::Time).contains("10.0 % less time of misses is expected"));
        let record = SwitchRecord { reason: SwitchReason::ForecastMissed, ..record };
        let line = describe(&PolicySwitch { from: to, to: from, age_s: 0, record }, Goal::Bytes);
        assert!(line.starts_with("back to small=10%,"), "{line}");
        assert!(line.ends_with("skip=30%: more misses than were forecast"), "{line}");
    }
}
