//! What is counted in a window, and how long a window is.

/// Groups of keys: how much a gain differs between them is its sampling error.
pub const KEY_GROUPS: usize = 16;

/// Bits of a hash that choose the group; the others choose whether a key is sampled.
const GROUP_SHIFT: u32 = 60;

/// The group of a key.
pub fn group_of_hash(hash: u64) -> usize {
    (hash >> GROUP_SHIFT) as usize
}

/// Items that a sample has: enough for differences of one per cent, few enough to be cheap.
pub(crate) const SAMPLED_ITEMS: u64 = 8192;

/// The fewest items of a sample with which anything is decided.
pub(crate) const SAMPLED_ITEMS_MIN: u64 = 2000;

/// The fewest items where every key is sampled.
const ITEMS_MIN: u64 = 500;

/// The fewest items of a sample with which anything is decided; more are needed where it is not of every key.
pub(crate) fn sampled_items_min(is_every_key: bool) -> u64 {
    if is_every_key { ITEMS_MIN } else { SAMPLED_ITEMS_MIN }
}

/// The share of the keys that is sampled in a cache of so many items, above 0 to 1; `None` if there are too few items.
pub fn sampled_share(items: u64) -> Option<f64> {
    if items < sampled_items_min(items <= SAMPLED_ITEMS) {
        return None;
    }
    Some((SAMPLED_ITEMS as f64 / items as f64).min(1.0))
}

/// The cost of the misses of one candidate, by group of keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MissCosts {
    by_group: [u64; KEY_GROUPS],
    /// The sum of their squares.
    squares: u128,
}

impl MissCosts {
    /// Counts a miss of a key of this group.
    pub fn add(&mut self, group: usize, cost: u64) {
        if let Some(sum) = self.by_group.get_mut(group) {
            *sum += cost;
            self.squares += u128::from(cost) * u128::from(cost);
        }
    }

    /// The cost of all misses.
    pub fn total(&self) -> f64 {
        self.by_group.iter().sum::<u64>() as f64
    }

    /// The mean cost of a miss, weighed by the cost itself: the variance of the cost of misses that come at random is this
    /// times their cost. 1 where every miss costs 1.
    pub(super) fn dispersion(&self) -> f64 {
        if self.squares == 0 { 1.0 } else { self.squares as f64 / self.total() }
    }

    /// How much less `other` costs, and the standard error of that over the keys.
    pub(super) fn gain_of(&self, other: &Self) -> (f64, f64) {
        let pairs = self.by_group.iter().zip(&other.by_group);
        let gains: Vec<f64> = pairs.map(|(own, other)| *own as f64 - *other as f64).collect();
        let groups = KEY_GROUPS as f64;
        let total: f64 = gains.iter().sum();
        let squares: f64 = gains.iter().map(|gain| (gain - total / groups).powi(2)).sum();
        (total, (squares * groups / (groups - 1.0)).sqrt())
    }
}

/// What was counted in a window.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    /// Gets since the start, at the end of the window.
    pub requests: u64,
    /// The time at its end, in seconds, where there is a clock.
    pub now_s: Option<u64>,
    /// The cost of the misses of the cache itself.
    pub live_cost: f64,
    /// The cost of the sampled misses of the cache's miniature, whose settings change with it.
    pub miniature: MissCosts,
    /// The same of the copy of that miniature, if there is one.
    pub copy: MissCosts,
    /// The cost of the sampled misses of each candidate, the default first.
    pub candidates: &'a [MissCosts],
}

/// The length of a window: four gets for each stored item, and a minute where there is a clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct WindowLength {
    start_requests: u64,
    start_s: Option<u64>,
}

/// Gets of a window for each stored item.
const REQUESTS_PER_ITEM: u64 = 4;

/// The shortest window where there is a clock.
const WINDOW_S_MIN: u64 = 60;

impl WindowLength {
    /// Whether the window is over; the next one then starts here. A clock that is set back starts the time again.
    pub fn is_over(&mut self, requests: u64, items: u64, now_s: Option<u64>) -> bool {
        if now_s.zip(self.start_s).is_none_or(|(now, start)| now < start) {
            self.start_s = now_s;
        }
        let seconds = now_s.zip(self.start_s).map(|(now, start)| now - start);
        let is_over = requests.saturating_sub(self.start_requests)
            >= REQUESTS_PER_ITEM * items.max(1)
            && seconds.is_none_or(|seconds| seconds >= WINDOW_S_MIN);
        if is_over {
            self.restart(requests, now_s);
        }
        is_over
    }

    /// Begins a window here.
    pub(super) fn restart(&mut self, requests: u64, now_s: Option<u64>) {
        *self = Self { start_requests: requests, start_s: now_s };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_in_all_groups_is_certain_and_one_in_a_single_group_is_not() {
        let (mut own, mut everywhere, mut once) =
            (MissCosts::default(), MissCosts::default(), MissCosts::default());
        for group in 0..KEY_GROUPS {
            own.add(group, 100);
            everywhere.add(group, 90);
            once.add(group, if group == 3 { 0 } else { 100 });
        }
        assert_eq!(own.gain_of(&everywhere), (160.0, 0.0));
        assert!((own.dispersion() - 100.0).abs() < 1e-9);
        assert!((MissCosts::default().dispersion() - 1.0).abs() < 1e-9);
        let (gain, error) = own.gain_of(&once);
        assert!((gain - 100.0).abs() < 1e-9 && 3.0 * error > gain, "{gain} {error}");
    }

    #[test]
    fn a_window_needs_its_requests_and_its_minute_whatever_the_clock_does() {
        let mut without_clock = WindowLength::default();
        assert!(!without_clock.is_over(399, 100, None) && without_clock.is_over(400, 100, None));
        assert!(!without_clock.is_over(401, 100, None));
        let mut with_clock = WindowLength::default();
        assert!(!with_clock.is_over(0, 100, Some(1000)));
        assert!(!with_clock.is_over(5000, 100, Some(1059)));
        assert!(!with_clock.is_over(5001, 100, Some(10)), "set back: the minute starts again");
        assert!(with_clock.is_over(5002, 100, Some(70)));
        assert!(!with_clock.is_over(5003, 100, Some(u64::MAX)), "a jump brings no requests");
    }

    #[test]
    fn small_caches_are_sampled_whole_and_tiny_ones_not_at_all() {
        assert_eq!(
            (sampled_share(499), sampled_share(500), sampled_share(8192)),
            (None, Some(1.0), Some(1.0))
        );
        assert_eq!(sampled_share(81_920), Some(0.1));
    }
}
