//! The previous and the next request of the same object, for each request of a trace.
//!
//! Computed once per trace: with them LRU needs no list, and the optimal policies need no search.

/// Marks a request without a previous or next one.
pub(crate) const NEVER: u32 = u32::MAX;

/// For each request of a trace, the positions of the previous and the next request of the same object.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestLinks {
    pub(crate) previous: Vec<u32>,
    pub(crate) next: Vec<u32>,
}

impl RequestLinks {
    pub(crate) fn of(requested_ids: &[u32], object_count: usize) -> Self {
        let mut last_position = vec![NEVER; object_count];
        let mut previous = Vec::with_capacity(requested_ids.len());
        let mut next = vec![NEVER; requested_ids.len()];
        for (position, &id) in requested_ids.iter().enumerate() {
            let previous_position =
                std::mem::replace(&mut last_position[id as usize], position as u32);
            previous.push(previous_position);
            // `NEVER` is out of bounds.
            if let Some(next_of_previous) = next.get_mut(previous_position as usize) {
                *next_of_previous = position as u32;
            }
        }
        Self { previous, next }
    }
}
