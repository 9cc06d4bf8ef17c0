//! A first-in-first-out queue of objects in a ring that grows: push and pop are one array access.

/// Objects in insertion order.
#[derive(Debug)]
pub(super) struct Ring {
    slots: Vec<u32>,
    head: usize,
    tail: usize,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self {
            slots: vec![0; 1024],
            head: 0,
            tail: 0,
        }
    }

    /// Whether the queue is empty.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Appends an object.
    #[inline]
    pub(super) fn push(&mut self, id: u32) {
        if self.head - self.tail == self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        self.slots[self.head & mask] = id;
        self.head += 1;
    }

    /// Removes the oldest object.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let id = self.slots[self.tail & (self.slots.len() - 1)];
        self.tail += 1;
        Some(id)
    }

    #[cold]
    fn grow(&mut self) {
        let mask = self.slots.len() - 1;
        let mut slots: Vec<u32> = (self.tail..self.head)
            .map(|at| self.slots[at & mask])
            .collect();
        self.head = slots.len();
        self.tail = 0;
        slots.resize(self.slots.len() * 2, 0);
        self.slots = slots;
    }
}
