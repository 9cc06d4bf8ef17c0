//! What a tuned policy minimises.

/// What a miss costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Goal {
    /// Every miss costs the same.
    #[default]
    Objects,
    /// A miss costs the bytes of its item.
    Bytes,
    /// A miss costs the time that it takes to compute or fetch the item.
    Time,
}

impl Goal {
    /// All goals, the default first.
    pub const ALL: [Goal; 3] = [Goal::Objects, Goal::Bytes, Goal::Time];

    /// Its name in settings and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Goal::Objects => "objects",
            Goal::Bytes => "bytes",
            Goal::Time => "time",
        }
    }

    /// The goal of this name.
    pub fn by_name(name: &str) -> Option<Goal> {
        Goal::ALL.into_iter().find(|goal| goal.name() == name)
    }

    /// The cost of a miss of an item of so many bytes that takes so many microseconds to compute.
    pub fn miss_cost(self, bytes: impl FnOnce() -> u64, time_us: impl FnOnce() -> u64) -> u64 {
        match self {
            Goal::Objects => 1,
            Goal::Bytes => bytes(),
            Goal::Time => time_us(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_weigh_misses() {
        let cost = |goal: Goal| goal.miss_cost(|| 300, || 12_000);
        assert!(Goal::ALL.iter().all(|goal| Goal::by_name(goal.name()) == Some(*goal)));
        assert_eq!((cost(Goal::Objects), cost(Goal::Bytes), cost(Goal::Time)), (1, 300, 12_000));
    }
}
