//! What is planned for: sizes, and how they are kept now, wherever they come from.

use glasscache_sim::slabs::classes::SlabConfig;
use glasscache_sim::slabs::demand::Demand;

/// Sizes, and the settings under which they are kept now.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) config: SlabConfig,
    pub(super) demand: Demand,
    /// Whether it is a server of ours, which has no classes.
    pub(super) is_in_segments: bool,
    /// What a reader must know about where the sizes come from.
    pub(super) notes: Vec<String>,
}
