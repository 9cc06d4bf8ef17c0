//! Errors in a latency table: one sentence with table, row and problem.

/// Why a latency table cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LatencyError {
    /// Not JSON, or JSON of another shape; the sentence names line and column.
    #[error("not a latency table: {0}")]
    Shape(String),
    /// A unit other than microseconds.
    #[error("unit `{0}` is not known, must be `us`")]
    Unit(String),
    /// A table without rows.
    #[error("table `{0}` has no row")]
    Empty(&'static str),
    /// Rows out of order, or a number that is not a valid size, count or latency.
    #[error("table `{table}` row {row}: {problem}")]
    Row {
        /// Which table.
        table: &'static str,
        /// Counted from 1.
        row: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A distribution with missing or falling percentiles.
    #[error("single_pct of size {size}: {problem}")]
    Distribution {
        /// The size whose distribution it is.
        size: String,
        /// What is wrong with it.
        problem: String,
    },
}
