//! Times that flags give in seconds.

use std::time::Duration;

use crate::output::Failure;

/// The time that `flag` gives.
///
/// # Errors
/// It is not above 0, or too long to be a time.
pub(crate) fn to_duration(flag: &str, seconds: f64) -> Result<Duration, Failure> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| {
        Failure::usage(format!("{flag} {seconds}: must be a number of seconds above 0"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_time_above_0_is_taken() {
        assert_eq!(to_duration("--for-s", 0.25).ok(), Some(Duration::from_millis(250)));
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-12] {
            let failure = to_duration("--for-s", seconds).unwrap_err();
            let expected = format!("--for-s {seconds}: must be a number of seconds above 0");
            assert_eq!(failure.message(), expected);
        }
    }
}
