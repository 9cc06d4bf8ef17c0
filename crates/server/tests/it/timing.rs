//! Bounds of time that leave room for other work on the machine.

use std::time::Duration;

/// Fails if `elapsed` is over `time_max` and the room for other work: `GLASSCACHE_TEST_SLACK` seconds, 5 unless set.
/// `make faults-strict` sets it to 0.
pub(crate) fn assert_in_time(elapsed: Duration, time_max: Duration, situation: &str) {
    let slack_s =
        std::env::var("GLASSCACHE_TEST_SLACK").map_or(5.0, |text| text.parse::<f64>().unwrap());
    assert!(
        elapsed < time_max + Duration::from_secs_f64(slack_s),
        "{situation} took {elapsed:?}, more than {time_max:?} and {slack_s} s"
    );
}
