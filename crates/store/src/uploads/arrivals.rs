//! Uploads in the order of their arrival, with the sums and bounds that giving room asks for.
//!
//! Whether an upload may have more depends on all that came before it and all that came after. A tree over the order
//! of arrival keeps for each stretch of uploads what has to be known of it, so that a question and a change cost the
//! logarithm of how many there are: nine hundred that wait would otherwise make every question of theirs a walk
//! past nine hundred. A few uploads have no tree: to walk past them costs less than to keep one.

use std::ops::Range;

use crate::request::Seconds;

/// Uploads that have no tree. One upload changes four times and asks once: at this number the walk costs as much as
/// the tree.
const WALKED_MAX: usize = 32;

/// One upload as the others see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) held_bytes: u64,
    pub(super) missing_bytes: u64,
    pub(super) last: Seconds,
    pub(super) waits: bool,
}

/// What is known of a stretch of uploads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    /// What they hold.
    pub(super) held_bytes: u64,
    /// Free bytes with which each could be completed after those of the stretch that came before it.
    pub(super) needed_bytes: u64,
    /// When the one that waits for longest had its last piece; `u32::MAX` where none waits.
    pub(super) waits_since: u32,
    /// Whether it waits, its last progress, and its place: smallest for the idlest. The place is `usize::MAX` where
    /// there is none.
    idlest: (bool, u32, usize),
    /// When one that holds anything had its last piece.
    pub(super) progressed: Option<u32>,
}

impl Stretch {
    const EMPTY: Stretch = Stretch {
        held_bytes: 0,
        needed_bytes: 0,
        waits_since: u32::MAX,
        idlest: (true, u32::MAX, usize::MAX),
        progressed: None,
    };

    fn of(open: &Open, place: usize) -> Stretch {
        Stretch {
            held_bytes: open.held_bytes,
            needed_bytes: open.missing_bytes,
            waits_since: if open.waits { open.last.0 } else { u32::MAX },
            idlest: (open.waits, open.last.0, place),
            progressed: (open.held_bytes > 0).then_some(open.last.0),
        }
    }

    /// Both, `self` having come first.
    fn then(&self, later: &Stretch) -> Stretch {
        let needed_later = later.needed_bytes.saturating_sub(self.held_bytes);
        Stretch {
            held_bytes: self.held_bytes + later.held_bytes,
            needed_bytes: self.needed_bytes.max(needed_later),
            waits_since: self.waits_since.min(later.waits_since),
            idlest: self.idlest.min(later.idlest),
            progressed: self.progressed.max(later.progressed),
        }
    }
}

/// The open uploads.
#[derive(Default)]
pub(super) struct Arrivals {
    next: u64,
    /// Numbers by place, rising; those of places that were never taken are missing.
    ids: Vec<u64>,
    /// By place; `None` where the upload ended, which stands only where there is a tree.
    open: Vec<Option<Open>>,
    /// The tree: the whole at 1, the halves of `n` at `2 n` and `2 n + 1`, places in the second half. Empty while there
    /// are at most [`WALKED_MAX`] places.
    tree: Vec<Stretch>,
    /// Stretches looked at and changed, for tests.
    #[cfg(test)]
    pub(super) steps: std::cell::Cell<u64>,
}

impl Arrivals {
    /// Enters the next upload and returns its number.
    pub(super) fn enter(&mut self, open: Open) -> u64 {
        if self.ids.len() >= WALKED_MAX.max(self.tree.len() / 2) {
            self.rebuild();
        }
        let id = self.next;
        self.next += 1;
        self.ids.push(id);
        self.open.push(Some(open));
        self.note(self.ids.len() - 1);
        id
    }

    /// Takes an upload out.
    pub(super) fn leave(&mut self, id: u64) -> Option<Open> {
        let place = self.place_of(id)?;
        if self.tree.is_empty() {
            self.ids.remove(place);
            return self.open.remove(place);
        }
        let open = self.open.get_mut(place)?.take()?;
        self.note(place);
        Some(open)
    }

    pub(super) fn get(&self, id: u64) -> Option<Open> {
        *self.open.get(self.place_of(id)?)?
    }

    /// Changes an upload that is open.
    pub(super) fn change(&mut self, id: u64, change: impl FnOnce(&mut Open)) {
        if let Some(place) = self.place_of(id)
            && let Some(Some(open)) = self.open.get_mut(place)
        {
            change(open);
            self.note(place);
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Stretch {
        if self.tree.is_empty() {
            return self.walk(0..self.ids.len());
        }
        self.stretch(1)
    }

    /// Those that came before `id`, and those that came after.
    pub(super) fn around(&self, id: u64) -> Option<(Stretch, Stretch)> {
        let place = self.place_of(id)?;
        if self.tree.is_empty() {
            return Some((self.walk(0..place), self.walk(place + 1..self.ids.len())));
        }
        let (mut before, mut after) = (Stretch::EMPTY, Stretch::EMPTY);
        let mut node = self.tree.len() / 2 + place;
        while node > 1 {
            let sister = self.stretch(node ^ 1);
            if node % 2 == 1 {
                before = sister.then(&before);
            } else {
                after = after.then(&sister);
            }
            node /= 2;
        }
        Some((before, after))
    }

    /// The idlest, as [`crate::Store::idlest_upload`] defines it.
    pub(super) fn idlest(&self) -> Option<(u64, Open)> {
        let (_, _, place) = self.all().idlest;
        Some((*self.ids.get(place)?, (*self.open.get(place)?)?))
    }

    fn place_of(&self, id: u64) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    /// What the tree would say of the uploads at `places`.
    fn walk(&self, places: Range<usize>) -> Stretch {
        let open = self.open.get(places.clone()).unwrap_or_default();
        let each = places.zip(open).filter_map(|(place, open)| {
            self.step();
            Some(Stretch::of(open.as_ref()?, place))
        });
        each.fold(Stretch::EMPTY, |all, one| all.then(&one))
    }

    fn stretch(&self, node: usize) -> Stretch {
        self.step();
        self.tree.get(node).copied().unwrap_or(Stretch::EMPTY)
    }

    /// Brings the tree up to what stands at `place`.
    fn note(&mut self, place: usize) {
        if self.tree.is_empty() {
            return;
        }
        let mut node = self.tree.len() / 2 + place;
        let open = self.open.get(place).copied().flatten();
        let mut stretch = open.map_or(Stretch::EMPTY, |open| Stretch::of(&open, place));
        loop {
            if let Some(own) = self.tree.get_mut(node) {
                *own = stretch;
            }
            node /= 2;
            if node == 0 {
                return;
            }
            stretch = self.stretch(2 * node).then(&self.stretch(2 * node + 1));
        }
    }

    /// Closes the gaps of those that ended; half of the places are free afterwards. Few that are left need no tree.
    fn rebuild(&mut self) {
        let live = |(&id, open): (&u64, &Option<Open>)| open.map(|open| (id, open));
        let left: Vec<(u64, Open)> = self.ids.iter().zip(&self.open).filter_map(live).collect();
        self.ids = left.iter().map(|&(id, _)| id).collect();
        self.open = left.iter().map(|&(_, open)| Some(open)).collect();
        self.tree = Vec::new();
        if left.len() < WALKED_MAX / 2 {
            return;
        }
        let places = (2 * left.len()).next_power_of_two();
        self.tree = vec![Stretch::EMPTY; 2 * places];
        for (place, (_, open)) in left.iter().enumerate() {
            if let Some(own) = self.tree.get_mut(places + place) {
                *own = Stretch::of(open, place);
            }
        }
        for node in (1..places).rev() {
            let both = self.stretch(2 * node).then(&self.stretch(2 * node + 1));
            if let Some(own) = self.tree.get_mut(node) {
                *own = both;
            }
        }
    }

    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, reason = "steps are counted in tests only")
    )]
    fn step(&self) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
    }
}
