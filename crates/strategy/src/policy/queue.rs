//! Doubly linked queues threaded through one array of links, a slot being in one queue at a time.
//!
//! Links are numbers and not pointers: 8 bytes a slot, no allocation a step, and a slot is found
//! without searching.

/// Marks the end of a queue.
const END: u32 = u32::MAX;
/// Marks, in `older`, a slot that is in no queue.
const ABSENT: u32 = u32::MAX - 1;

#[derive(Debug, Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

/// The links of all slots; grows as slots appear.
#[derive(Debug, Default)]
pub(super) struct Links {
    by_slot: Vec<Link>,
}

impl Links {
    pub(super) fn is_queued(&self, slot: u32) -> bool {
        self.by_slot.get(slot as usize).is_some_and(|link| link.older != ABSENT)
    }

    fn grow_to(&mut self, slot: u32) {
        let needed = slot as usize + 1;
        if needed > self.by_slot.len() {
            self.by_slot.resize(needed, Link { newer: END, older: ABSENT });
        }
    }
}

/// One queue: `newest` was added last, `oldest` is evicted first.
#[derive(Debug)]
pub(super) struct Queue {
    newest: u32,
    oldest: u32,
    len: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self { newest: END, oldest: END, len: 0 }
    }
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != END).then_some(self.oldest)
    }

    /// Adds a slot that is in no queue at the newest end.
    pub(super) fn push(&mut self, links: &mut Links, slot: u32) {
        links.grow_to(slot);
        links.by_slot[slot as usize] = Link { newer: END, older: self.newest };
        match self.newest {
            END => self.oldest = slot,
            newest => links.by_slot[newest as usize].newer = slot,
        }
        self.newest = slot;
        self.len += 1;
    }

    /// Removes a slot from this queue.
    pub(super) fn unlink(&mut self, links: &mut Links, slot: u32) {
        let Link { newer, older } = links.by_slot[slot as usize];
        match newer {
            END => self.newest = older,
            newer => links.by_slot[newer as usize].older = older,
        }
        match older {
            END => self.oldest = newer,
            older => links.by_slot[older as usize].newer = newer,
        }
        links.by_slot[slot as usize].older = ABSENT;
        self.len -= 1;
    }

    /// Moves a slot to the newest end; false, and nothing done, if it is not queued.
    pub(super) fn move_to_newest(&mut self, links: &mut Links, slot: u32) -> bool {
        if !links.is_queued(slot) {
            return false;
        }
        if self.newest != slot {
            self.unlink(links, slot);
            self.push(links, slot);
        }
        true
    }

    /// Removes and returns the oldest slot.
    pub(super) fn pop(&mut self, links: &mut Links) -> Option<u32> {
        let slot = self.oldest()?;
        self.unlink(links, slot);
        Some(slot)
    }

    pub(super) fn clear(&mut self, links: &mut Links) {
        while self.pop(links).is_some() {}
    }
}
