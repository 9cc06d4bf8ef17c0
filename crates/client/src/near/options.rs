//! The settings of a strategy that a client runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use glasscache_strategy::file::StrategyFile;
use glasscache_strategy::never_kept::NeverRules;
use glasscache_strategy::rollout::rollout_share::RolloutShare;
use glasscache_strategy::rollout::value_checks::NEAR_CHECK_DEFAULT;

/// How long a value may be served after a write of another process, unless configured otherwise.
const NEAR_TTL_DEFAULT: Duration = Duration::from_secs(10);

/// A strategy and how a client runs it.
#[derive(Debug, Clone)]
pub struct StrategyOptions {
    /// The strategy with its keys and rules, as `simulate --save` writes it.
    pub file: StrategyFile,
    /// How much older than a write of another process a value may be when it is served; `None`: until its TTL.
    pub near_ttl: Option<Duration>,
    /// Whether other clients' changes are followed by watching the servers, so that a value is served no longer than
    /// 50 ms after a change that a glasscache server acknowledged. Each process needs a connection and a thread for
    /// each server.
    pub is_coherent: bool,
    /// The children of an item, instead of the file's.
    pub children_of: Option<ChildrenOf>,
    /// The share of the requests that run it, where it disables itself if it is worse than the others; `None`: all
    /// requests run it, whatever they need.
    pub share: Option<RolloutShare>,
    /// With a share, the fraction of the reads that the process serves itself, 0 to 1, that are also read from the
    /// servers: whether what it serves is older than `near_ttl`, or 50 ms with `is_coherent`, allows.
    pub near_check: f64,
    /// What is not kept, and what is kept all the same, besides what the file names.
    pub never: NeverRules,
}

impl StrategyOptions {
    /// This strategy with the defaults.
    pub fn new(file: StrategyFile) -> Self {
        Self {
            file,
            near_ttl: Some(NEAR_TTL_DEFAULT),
            is_coherent: false,
            children_of: None,
            share: None,
            near_check: NEAR_CHECK_DEFAULT,
            never: NeverRules::default(),
        }
    }
}

/// Returns the children of a key, in ascending order; keys are without their namespace.
///
/// It is called without any lock of the client, once for each read that needs it.
#[derive(Clone)]
pub struct ChildrenOf(Arc<ChildrenFn>);

/// A function from a key to the keys of its children.
type ChildrenFn = dyn Fn(&[u8]) -> Vec<Vec<u8>> + Send + Sync;

impl ChildrenOf {
    /// The children as this function returns them.
    pub fn new(children_of: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(children_of))
    }

    pub(super) fn call(&self, key: &[u8]) -> Vec<Vec<u8>> {
        (self.0)(key)
    }
}

impl fmt::Debug for ChildrenOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChildrenOf(..)")
    }
}
