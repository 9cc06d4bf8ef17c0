//! Policies of traces as the local cache of a process: what the simulator has and no client.

use glasscache_strategy::policy::{Policy, Released};

use crate::policy::LookUp;

/// A local cache of a policy of traces, in which every item counts 1.
pub(super) struct SimulatedPolicy<P, F> {
    capacity: usize,
    new_policy: F,
    policy: P,
}

impl<P: LookUp, F: Fn() -> P> SimulatedPolicy<P, F> {
    /// An empty cache of `capacity` items; 0 keeps nothing.
    pub(super) fn new(capacity: usize, new_policy: F) -> Self {
        let policy = new_policy();
        Self { capacity, new_policy, policy }
    }
}

impl<P: LookUp, F: Fn() -> P> Policy for SimulatedPolicy<P, F> {
    fn contains(&self, slot: u32) -> bool {
        self.policy.contains(slot)
    }

    fn get(&mut self, slot: u32) -> bool {
        self.capacity > 0 && self.policy.get(slot)
    }

    /// Evictions are not reported to anyone: the simulator stores no values.
    fn insert(&mut self, slot: u32, _: u32, _: &mut impl FnMut(u32, Released)) -> bool {
        if self.capacity == 0 {
            return false;
        }
        self.policy.insert(slot);
        true
    }

    fn remove(&mut self, slot: u32) {
        self.policy.remove(slot);
    }

    /// Miniatures of the policy may have an item that the cache itself has evicted.
    fn remove_stale(&mut self, slot: u32) {
        self.policy.remove(slot);
    }

    fn clear(&mut self) {
        self.policy = (self.new_policy)();
    }
}
