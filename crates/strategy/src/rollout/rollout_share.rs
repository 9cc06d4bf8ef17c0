//! Which requests run a strategy: a share of them, or all requests of a share of the processes.

use std::fmt;
use std::str::FromStr;

/// One of the two groups of requests that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Those that run the strategy.
    Strategy,
    /// Those that do not.
    Control,
}

/// What is divided into the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShareBy {
    /// The requests of each process.
    #[default]
    Request,
    /// The processes.
    Process,
}

/// How much of an application runs a strategy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RolloutShare {
    /// From 0, none, to 1, all.
    pub fraction: f64,
    /// What is divided.
    pub by: ShareBy,
}

/// Why a share was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ShareError {
    /// Not a share.
    #[error("share={0}: a number from 0 (no request runs the strategy) to 1 (all do)")]
    Range(f64),
    /// Not a kind of division.
    #[error("share_by={0:?}: \"request\" or \"process\"")]
    By(String),
}

impl Default for RolloutShare {
    /// Everything runs the strategy.
    fn default() -> Self {
        Self { fraction: 1.0, by: ShareBy::Request }
    }
}

impl RolloutShare {
    /// Refuses numbers that are not a share.
    pub fn check(self) -> Result<Self, ShareError> {
        if (0.0..=1.0).contains(&self.fraction) {
            Ok(self)
        } else {
            Err(ShareError::Range(self.fraction))
        }
    }

    /// The group of a request by its number in the process; `process_seed` is a random number of that process.
    pub fn group_of(self, request_number: u64, process_seed: u64) -> Group {
        let number_to_hash = match self.by {
            ShareBy::Request => request_number,
            ShareBy::Process => process_seed,
        };
        if hash_is_within(number_to_hash, self.fraction) { Group::Strategy } else { Group::Control }
    }

    /// The group of reads outside requests; `None`: they are in no group and do not run the strategy, as where only some
    /// of the requests do.
    pub fn group_outside_requests(self, process_seed: u64) -> Option<Group> {
        match self.by {
            ShareBy::Request if self.fraction < 1.0 => None,
            ShareBy::Request | ShareBy::Process => Some(self.group_of(0, process_seed)),
        }
    }
}

/// Whether a hash of the number is within the fraction: even in any run of numbers, and another choice than that of the
/// recorder, which hashes numbers of requests as well.
fn hash_is_within(number: u64, fraction: f64) -> bool {
    // The finaliser of MurmurHash3, after an increment of its own.
    let mut hash = number.wrapping_add(0xd1b5_4a32_d192_ed03);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    ((hash >> 11) as f64) < fraction * (1_u64 << 53) as f64
}

impl FromStr for ShareBy {
    type Err = ShareError;

    fn from_str(name: &str) -> Result<Self, ShareError> {
        match name {
            "request" => Ok(Self::Request),
            "process" => Ok(Self::Process),
            _ => Err(ShareError::By(name.to_owned())),
        }
    }
}

impl fmt::Display for ShareBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request",
            Self::Process => "process",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_by_request_is_even_over_the_numbers_and_the_same_in_every_process() {
        for fraction in [0.0, 0.1, 0.5, 1.0] {
            let by_request = RolloutShare { fraction, by: ShareBy::Request };
            for start in [0, 1_000_000] {
                let group = |number| by_request.group_of(number, 7);
                let chosen =
                    (start..start + 10_000).filter(|&number| group(number) == Group::Strategy);
                let deviation = chosen.count() as f64 - fraction * 10_000.0;
                assert!(deviation.abs() <= 4.0 * 50.0, "{fraction}: {deviation}");
            }
            assert!(
                (0..100)
                    .all(|number| by_request.group_of(number, 1) == by_request.group_of(number, 2))
            );
        }
    }

    #[test]
    fn a_share_by_process_puts_all_requests_of_a_process_into_one_group() {
        let share = RolloutShare { fraction: 0.25, by: ShareBy::Process };
        let group = |process_seed| share.group_of(0, process_seed);
        let chosen =
            (0..10_000).filter(|&process_seed| group(process_seed) == Group::Strategy).count();
        assert!((2300..2700).contains(&chosen), "{chosen}");
        assert!((0..1000).all(|number| share.group_of(number, 3) == group(3)));
        assert_eq!(share.group_outside_requests(3), Some(group(3)));
    }

    #[test]
    fn reads_outside_requests_run_the_strategy_only_where_all_requests_do() {
        assert_eq!(RolloutShare::default().group_outside_requests(1), Some(Group::Strategy));
        let half = RolloutShare { fraction: 0.5, by: ShareBy::Request };
        assert_eq!(half.group_outside_requests(1), None);
    }

    #[test]
    fn a_wrong_share_or_division_is_refused_with_what_is_possible() {
        for fraction in [-0.1, 1.5, f64::NAN] {
            let share = RolloutShare { fraction, ..RolloutShare::default() };
            assert!(share.check().is_err());
        }
        let message = "host".parse::<ShareBy>().unwrap_err().to_string();
        assert_eq!(message, "share_by=\"host\": \"request\" or \"process\"");
        assert_eq!("process".parse(), Ok(ShareBy::Process));
    }
}
