//! Virtual time, and how the engine, which counts in [`Instant`], receives it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::plan::Micros;

/// The moment at which virtual time begins.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// A moment of virtual time as the engine takes it.
pub(super) fn instant(time: Micros) -> Instant {
    epoch() + Duration::from_micros(time)
}

/// A moment that the engine names, in virtual time.
pub(super) fn micros(moment: Instant) -> Micros {
    moment.saturating_duration_since(epoch()).as_micros() as Micros
}
