//! The input of a slab plan, from any source: item sizes and the current settings.

use glasscache_sim::slabs::classes::SlabConfig;
use glasscache_sim::slabs::demand::Demand;

/// Item sizes and the current settings.
pub(super) struct PlanInput {
    /// The server, trace or histogram, as it was named on the command line.
    pub(super) name: String,
    pub(super) config: SlabConfig,
    pub(super) demand: Demand,
    /// `-m` of the server.
    pub(super) memory_bytes: Option<u64>,
    /// Whether the source is a glasscache server, which has no slab classes.
    pub(super) is_glasscache: bool,
    /// Notes about the source of the sizes.
    pub(super) notes: Vec<String>,
}
