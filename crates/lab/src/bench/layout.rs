//! CPU assignment: servers on the first half of the machine, the generator on the rest.

/// CPUs of both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuLayout {
    /// One worker of the server on each.
    pub(crate) server: Vec<usize>,
    /// One thread of the generator on each.
    pub(crate) generator: Vec<usize>,
}

impl CpuLayout {
    /// Two and two on four cores and more; one and one on two; everything on the only one.
    pub(crate) fn of(cores: usize) -> Self {
        match cores {
            0 | 1 => Self { server: vec![0], generator: vec![0] },
            2 | 3 => Self { server: vec![0], generator: vec![1] },
            _ => Self { server: vec![0, 1], generator: vec![2, 3] },
        }
    }

    /// The layout for this machine.
    pub(crate) fn of_this_machine() -> Self {
        Self::of(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// For a reader with interference: only the generator's first CPU.
    pub(crate) fn reader_layout(&self) -> Self {
        Self {
            server: self.server.clone(),
            generator: self.generator.iter().take(1).copied().collect(),
        }
    }

    /// The CPU of the interference: the generator's last.
    pub(crate) fn interference_cpus(&self) -> Vec<usize> {
        self.generator.last().copied().into_iter().collect()
    }

    /// A description for the reader of the results.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{} pinned worker{} for each server on CPU {:?}, {} generator thread{} on CPU {:?}{}",
            self.server.len(),
            if self.server.len() == 1 { "" } else { "s" },
            self.server,
            self.generator.len(),
            if self.generator.len() == 1 { "" } else { "s" },
            self.generator,
            if self.server == self.generator {
                ": they share it, so only ratios mean anything"
            } else {
                ""
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_give_one_to_each_side_and_four_give_two() {
        assert_eq!(CpuLayout::of(2), CpuLayout { server: vec![0], generator: vec![1] });
        assert_eq!(CpuLayout::of(4), CpuLayout { server: vec![0, 1], generator: vec![2, 3] });
    }
}
