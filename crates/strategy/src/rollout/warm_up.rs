//! When a process has warmed up: what it keeps has stopped growing.

/// The near cache is looked at each time this many requests have ended.
const REQUESTS_PER_LOOK: u64 = 100;

/// It has stopped growing if it has at most this many times the items of the last look.
const GROWTH_MAX: f64 = 1.01;

/// What a process keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NearContent {
    /// Items in the near cache.
    pub items: usize,
    /// Whether it had to evict something, or keeps nothing.
    pub is_full: bool,
    /// Whether the fixed set is loaded.
    pub is_fixed_set_loaded: bool,
}

impl NearContent {
    /// A process that keeps all that it will keep.
    pub const COMPLETE: Self = Self { items: 0, is_full: true, is_fixed_set_loaded: true };
}

/// How far a process has warmed up.
#[derive(Debug, Clone, Default)]
pub(super) struct WarmUp {
    requests_since_look: u64,
    items_at_look: usize,
    is_warm: bool,
}

impl WarmUp {
    /// Notes that a request has ended; whether the process was warm then.
    pub(super) fn note_request(&mut self, content: NearContent) -> bool {
        if self.is_warm || !content.is_fixed_set_loaded {
            return self.is_warm;
        }
        if content.is_full {
            self.is_warm = true;
            return true;
        }
        self.requests_since_look += 1;
        if self.requests_since_look == REQUESTS_PER_LOOK {
            self.is_warm = content.items as f64 <= self.items_at_look as f64 * GROWTH_MAX;
            (self.requests_since_look, self.items_at_look) = (0, content.items);
        }
        false
    }

    pub(super) fn is_warm(&self) -> bool {
        self.is_warm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(items: usize) -> NearContent {
        NearContent { items, is_full: false, is_fixed_set_loaded: true }
    }

    #[test]
    fn a_near_cache_is_warm_when_it_has_stopped_growing_whatever_it_could_hold() {
        let mut warm_up = WarmUp::default();
        let warm_after =
            (1..10_000).find(|number| warm_up.note_request(content((number / 2).min(275))));
        // It grows until request 550; between the looks at 600 and 700 it does not.
        assert_eq!(warm_after, Some(701));
    }

    #[test]
    fn a_full_near_cache_is_warm_once_its_fixed_set_is_loaded() {
        let mut warm_up = WarmUp::default();
        let not_loaded = NearContent { is_fixed_set_loaded: false, ..NearContent::COMPLETE };
        assert!(!(0..500).any(|_| warm_up.note_request(not_loaded)));
        assert!(warm_up.note_request(NearContent::COMPLETE) && warm_up.is_warm());
    }
}
