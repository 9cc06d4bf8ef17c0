//! When the values of a fixed set are refreshed, and what loading and refreshing them costs.

use std::time::Duration;

/// A refresh fetches what expires within this part of `near_ttl`, so that the set is whole when it is read next.
pub const REFRESH_AHEAD_DIVISOR: u32 = 10;

/// The name of the forecast of keys that refreshing the fixed set costs a request.
pub const REFRESHED_KEYS: &str = "refreshed_keys";

/// What loading and refreshing the fixed set cost, apart from what requests needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FixedSetLoads {
    /// Calls.
    pub calls: u64,
    /// Keys fetched.
    pub keys: u64,
}

impl FixedSetLoads {
    /// Adds those of another process.
    pub fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.keys += other.keys;
    }
}

/// The shortest time between two refreshes if nothing but TTLs bounds the age of a value.
const REFRESH_INTERVAL_WITHOUT_NEAR_TTL: Duration = Duration::from_secs(5);

/// The shortest time between two refreshes.
pub fn shortest_refresh_interval(near_ttl: Option<Duration>) -> Duration {
    near_ttl.map_or(REFRESH_INTERVAL_WITHOUT_NEAR_TTL, |near_ttl| near_ttl / 2)
}

/// From one load of values without TTLs to the next.
pub fn refresh_interval(near_ttl: Duration) -> Duration {
    near_ttl.saturating_sub(near_ttl / REFRESH_AHEAD_DIVISOR)
}
