//! The five settings of S4-FIFO: their notation, and the two published grids.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Shares are counted in ten-thousandths, so that settings can be compared and hashed.
const SHARE_UNIT: f64 = 10_000.0;

/// The largest ghost, as a share of the capacity.
const GHOST_SHARE_MAX: f64 = 100.0;

/// The largest threshold: uses and ghost hits are counted up to it.
const THRESHOLD_MAX: u8 = 250;

/// Settings of S4-FIFO (Xia et al., OSDI 2026); the default is S3-FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct S4FifoSettings {
    small: u32,
    ghost: u32,
    skip: u32,
    uses_to_promote: u8,
    ghost_hits_ignored: u8,
}

impl Default for S4FifoSettings {
    fn default() -> Self {
        Self::from_row((0.1, 2, 0, 0.9, 0.0))
    }
}

/// Small share, uses to main, ignored ghost hits, ghost share, skip share, in the order of the published tables.
type Row = (f64, u8, u8, f64, f64);

/// The 18 settings of the paper.
const PAPER_GRID: [Row; 18] = [
    (0.2, 1, 0, 3.0, 0.25),
    (0.05, 1, 0, 0.9, 0.25),
    (0.5, 1, 0, 0.9, 0.25),
    (0.2, 1, 0, 0.9, 0.25),
    (0.05, 2, 0, 6.0, 0.25),
    (0.1, 2, 1, 3.0, 0.25),
    (0.3, 2, 0, 3.0, 0.25),
    (0.05, 2, 0, 3.0, 0.25),
    (0.1, 2, 0, 0.9, 0.25),
    (0.7, 1, 1, 0.9, 0.25),
    (0.2, 1, 1, 0.9, 0.25),
    (0.05, 1, 1, 0.9, 0.25),
    (0.3, 1, 0, 6.0, 0.25),
    (0.2, 2, 0, 0.9, 0.25),
    (0.9, 2, 0, 3.0, 0.25),
    (0.1, 2, 0, 6.0, 0.25),
    (0.3, 2, 1, 3.0, 0.25),
    (0.05, 2, 0, 0.9, 0.25),
];

/// The 20 settings of `libCacheSim` of September 2026.
const LIBRARY_GRID: [Row; 20] = [
    (0.2, 1, 0, 0.9, 0.25),
    (0.04, 2, 0, 0.6, 0.8),
    (0.3, 1, 0, 6.0, 0.25),
    (0.03, 3, 0, 1.5, 0.2),
    (0.015, 50, 0, 0.3, 0.8),
    (0.08, 10, 0, 2.0, 0.0),
    (0.16, 6, 0, 4.0, 0.35),
    (0.7, 1, 1, 0.9, 0.25),
    (0.05, 2, 0, 6.0, 0.25),
    (0.05, 1, 0, 0.9, 0.25),
    (0.2, 1, 0, 3.0, 0.25),
    (0.5, 1, 0, 0.9, 0.25),
    (0.13, 8, 0, 8.0, 0.25),
    (0.1, 20, 0, 1.5, 0.8),
    (0.03, 5, 0, 6.0, 1.0),
    (0.03, 5, 0, 1.2, 0.05),
    (0.015, 2, 0, 20.0, 0.05),
    (0.8, 1, 0, 0.0, 0.05),
    (0.03, 6, 0, 1.5, 0.4),
    (0.3, 8, 0, 3.0, 0.9),
];

impl S4FifoSettings {
    /// The settings of a published grid by its name: `s4fifo-paper` (18) or `s4fifo-library` (20).
    pub fn grid(name: &str) -> Option<Vec<Self>> {
        let rows: &[Row] = match name {
            "s4fifo-paper" => &PAPER_GRID,
            "s4fifo-library" => &LIBRARY_GRID,
            _ => return None,
        };
        Some(rows.iter().map(|&row| Self::from_row(row)).collect())
    }

    /// Share of the capacity that the small queue has.
    pub fn small_share(&self) -> f64 {
        f64::from(self.small) / SHARE_UNIT
    }

    /// Uses in the small queue that move an object to the main queue.
    pub fn uses_to_promote(&self) -> u8 {
        self.uses_to_promote
    }

    /// Ghost hits of an object that do not yet move it to the main queue.
    pub fn ghost_hits_ignored(&self) -> u8 {
        self.ghost_hits_ignored
    }

    /// What the ghost remembers, as a share of the capacity.
    pub fn ghost_share(&self) -> f64 {
        f64::from(self.ghost) / SHARE_UNIT
    }

    /// Share of the small queue, from its young end, in which uses do not count.
    pub fn skip_share(&self) -> f64 {
        f64::from(self.skip) / SHARE_UNIT
    }

    fn from_row((small, uses_to_promote, ghost_hits_ignored, ghost, skip): Row) -> Self {
        Self {
            small: to_units(small),
            ghost: to_units(ghost),
            skip: to_units(skip),
            uses_to_promote,
            ghost_hits_ignored,
        }
    }

    /// Changes one setting, `name=value`; also by the longer names of `libCacheSim`.
    fn set(&mut self, assignment: &str) -> Result<(), InvalidS4FifoSetting> {
        let refuse = |expected| InvalidS4FifoSetting { given: assignment.to_owned(), expected };
        let unknown = "small=, main=, ghost-main=, ghost= or skip= with a number";
        let (name, value) = assignment.split_once('=').ok_or_else(|| refuse(unknown))?;
        let share = |min: f64, max: f64, expected| {
            let share = value.parse().ok().filter(|share: &f64| (min..=max).contains(share));
            share.map(to_units).ok_or_else(|| refuse(expected))
        };
        let threshold = |min: u8, expected| {
            let threshold = value.parse().ok().filter(|t: &u8| (min..=THRESHOLD_MAX).contains(t));
            threshold.ok_or_else(|| refuse(expected))
        };
        match name {
            "small" | "small-size-ratio" => {
                self.small = share(0.0001, 0.9999, "a share from 0.0001 to 0.9999")?;
            }
            "main" | "move-to-main-threshold" => {
                self.uses_to_promote = threshold(1, "a number of uses from 1 to 250")?;
            }
            "ghost-main" | "ghost-to-main-threshold" => {
                self.ghost_hits_ignored = threshold(0, "a number of ghost hits from 0 to 250")?;
            }
            "ghost" | "ghost-size-ratio" => {
                self.ghost = share(0.0, GHOST_SHARE_MAX, "a share of the capacity from 0 to 100")?;
            }
            "skip" | "skip-ratio" => {
                self.skip = share(0.0, 1.0, "a share of the small queue from 0 to 1")?;
            }
            _ => return Err(refuse(unknown)),
        }
        Ok(())
    }
}

fn to_units(share: f64) -> u32 {
    (share * SHARE_UNIT).round() as u32
}

/// A setting of S4-FIFO that is unknown or out of its range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{given}\" is not a setting of S4-FIFO: expected {expected}")]
pub struct InvalidS4FifoSetting {
    given: String,
    expected: &'static str,
}

impl FromStr for S4FifoSettings {
    type Err = InvalidS4FifoSetting;

    /// Reads `small=0.1,main=2,ghost-main=0,ghost=0.9,skip=0`; what is left out keeps its default.
    fn from_str(text: &str) -> Result<Self, InvalidS4FifoSetting> {
        let mut settings = Self::default();
        text.split(',').try_for_each(|assignment| settings.set(assignment))?;
        Ok(settings)
    }
}

impl fmt::Display for S4FifoSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "small={},main={},ghost-main={},ghost={},skip={}",
            self.small_share(),
            self.uses_to_promote,
            self.ghost_hits_ignored,
            self.ghost_share(),
            self.skip_share()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_reads_back_and_knows_the_names_of_libcachesim() {
        for name in ["s4fifo-paper", "s4fifo-library"] {
            for settings in S4FifoSettings::grid(name).unwrap() {
                assert_eq!(settings.to_string().parse(), Ok(settings));
            }
        }
        let settings: S4FifoSettings =
            "small-size-ratio=0.05,move-to-main-threshold=3,skip-ratio=0.25".parse().unwrap();
        assert_eq!(settings.to_string(), "small=0.05,main=3,ghost-main=0,ghost=0.9,skip=0.25");
    }

    #[test]
    fn wrong_settings_are_refused_with_what_is_expected() {
        for (text, expected) in [
            ("small=0", "a share from 0.0001"),
            ("small=1.5", "a share from 0.0001"),
            ("main=0", "a number of uses from 1"),
            ("main=x", "a number of uses from 1"),
            ("ghost=-1", "a share of the capacity"),
            ("ghost=NaN", "a share of the capacity"),
            ("skip=2", "a share of the small queue"),
            ("large=2", "small=, main="),
            ("small", "small=, main="),
        ] {
            let refusal = text.parse::<S4FifoSettings>().unwrap_err().to_string();
            assert!(refusal.contains(expected) && refusal.contains(text), "{refusal}");
        }
    }
}
