//! The policies by name.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use super::{Goal, InvalidS4FifoSetting, S4FifoSettings};

/// A replacement policy that can be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicyKind {
    /// Evicts the least recently used object.
    Lru,
    /// Evicts the oldest object.
    Fifo,
    /// FIFO with a second chance: one reference bit an object.
    Clock,
    /// Evicts the least often used object, the first into its frequency class first.
    Lfu,
    /// A hand that moves from old to new and keeps used objects in place (Zhang et al., NSDI 2024).
    Sieve,
    /// A small queue for new objects, a main queue, a ghost (Yang et al., SOSP 2023).
    S3Fifo,
    /// S3-FIFO with free settings (Xia et al., OSDI 2026). Not in [`PolicyKind::ALL`]: by default it is S3-FIFO.
    S4Fifo(S4FifoSettings),
    /// Recency and frequency lists with an adaptive split (Megiddo and Modha, FAST 2003).
    Arc,
    /// A FIFO for new objects, an LRU for those requested again (Johnson and Shasha, VLDB 1994).
    TwoQ,
    /// LRU in four segments; a hit promotes by one segment.
    Slru,
    /// Low inter-reference recency set (Jiang and Zhang, SIGMETRICS 2002).
    Lirs,
    /// A window, then admission by frequency into a segmented LRU (Einziger, Friedman, Manes, 2017).
    WTinyLfu,
    /// Least hit density, learned from ages (Beckmann, Chen, Cidon, NSDI 2018).
    Lhd,
    /// LRU and LFU weighted by regret (Vietri et al., `HotStorage` 2018).
    LeCar,
    /// Greedy dual by size and frequency (Cherkasova, 1998).
    Gdsf,
    /// Evicts the object with the furthest next use; a miss always stores. Knows the future.
    Belady,
    /// Evicts the object with the furthest next use, which may be the new object. Knows the future.
    BeladyBypass,
    /// Belady by size times distance, over a sample of the cache. Knows the future.
    BeladySize,
    /// memcached; the capacity is its `-m`. Not in [`PolicyKind::ALL`], and without a name that can be read.
    Memcached {
        /// Bytes of every key.
        key_bytes: u32,
    },
    /// The server's policy over items of their own weight, with settings that are tuned so that misses, or missed bytes,
    /// become fewer. Not in [`PolicyKind::ALL`].
    Tuned(Goal),
    /// The server's own store, whose capacity in bytes is all of its memory; where objects count 1, its policy over
    /// items. Not in [`PolicyKind::ALL`].
    #[cfg(feature = "own-policy")]
    ServerStore,
}

impl PolicyKind {
    /// Every published policy, in the order of the tables.
    pub const ALL: [Self; 17] = [
        Self::Lru,
        Self::Fifo,
        Self::Clock,
        Self::Lfu,
        Self::Sieve,
        Self::S3Fifo,
        Self::Arc,
        Self::TwoQ,
        Self::Slru,
        Self::Lirs,
        Self::WTinyLfu,
        Self::Lhd,
        Self::LeCar,
        Self::Gdsf,
        Self::Belady,
        Self::BeladyBypass,
        Self::BeladySize,
    ];

    /// The name in tables and results.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::S4Fifo(settings) => Cow::Owned(format!("s4fifo:{settings}")),
            Self::Tuned(goal) if goal != Goal::default() => {
                Cow::Owned(format!("tuned:{}", goal.name()))
            }
            fixed => Cow::Borrowed(fixed.fixed_name()),
        }
    }

    /// The name without settings.
    fn fixed_name(self) -> &'static str {
        match self {
            Self::Lru => "LRU",
            Self::Fifo => "FIFO",
            Self::Clock => "Clock",
            Self::Lfu => "LFU",
            Self::Sieve => "SIEVE",
            Self::S3Fifo => "S3-FIFO",
            Self::S4Fifo(_) => "s4fifo",
            Self::Arc => "ARC",
            Self::TwoQ => "2Q",
            Self::Slru => "SLRU",
            Self::Lirs => "LIRS",
            Self::WTinyLfu => "W-TinyLFU",
            Self::Lhd => "LHD",
            Self::LeCar => "LeCaR",
            Self::Gdsf => "GDSF",
            Self::Belady => "Belady",
            Self::BeladyBypass => "Belady-bypass",
            Self::BeladySize => "BeladySize",
            Self::Memcached { .. } => "memcached",
            Self::Tuned(_) => "tuned",
            #[cfg(feature = "own-policy")]
            Self::ServerStore => "glasscache",
        }
    }

    /// Whether the policy knows the future, so that no real cache can use it.
    pub fn is_offline(self) -> bool {
        matches!(self, Self::Belady | Self::BeladyBypass | Self::BeladySize)
    }

    /// Whether the policy's result depends on the seed.
    pub fn is_random(self) -> bool {
        matches!(self, Self::Lhd | Self::LeCar | Self::BeladySize | Self::Tuned(_))
    }

    /// What its settings are tuned for, if they are.
    pub fn tuning_goal(self) -> Option<Goal> {
        match self {
            Self::Tuned(goal) => Some(goal),
            _ => None,
        }
    }

    /// An error if the policy cannot be replayed where every object counts 1, because there are no sizes.
    pub fn check_sizes(self, has_sizes: bool) -> Result<(), SizesMissing> {
        if self == Self::Tuned(Goal::Bytes) && !has_sizes { Err(SizesMissing) } else { Ok(()) }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.name())
    }
}

/// A policy that weighs misses by bytes, where every object counts 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "tuned:bytes needs the sizes of the objects, and every object counts 1: choose the mode bytes, or tuned"
)]
pub struct SizesMissing;

/// An unknown policy name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPolicy {
    /// No policy is called that.
    #[error("no policy is called \"{0}\"; there are {list}", list = list_names())]
    Name(String),
    /// A goal that a trace cannot serve.
    #[error(
        "a trace has no times of misses, so tuned:time cannot be replayed; a server measures them (-o policy_goal=time)"
    )]
    TimeGoal,
    /// No goal is called that.
    #[error("\"{0}\" is not a goal of tuned: use objects or bytes")]
    Goal(String),
    /// The policy exists, but its settings cannot be read.
    #[error(transparent)]
    Setting(#[from] InvalidS4FifoSetting),
}

fn list_names() -> String {
    let fixed_names = PolicyKind::ALL.map(PolicyKind::fixed_name).join(", ");
    format!(
        "{fixed_names}, tuned, tuned:bytes, s4fifo, s4fifo:small=0.1,main=2,ghost-main=0,ghost=0.9,skip=0"
    )
}

/// The letters and digits of a name, in lower case.
fn normalize_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    /// Reads a name in any case, with or without hyphens.
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        if let Some(settings) = name.strip_prefix("s4fifo:") {
            return Ok(Self::S4Fifo(settings.parse()?));
        }
        if let Some(goal) = name.strip_prefix("tuned:") {
            let unknown_goal = || UnknownPolicy::Goal(goal.to_owned());
            return match Goal::by_name(goal).ok_or_else(unknown_goal)? {
                Goal::Time => Err(UnknownPolicy::TimeGoal),
                goal => Ok(Self::Tuned(goal)),
            };
        }
        let wanted_name = normalize_name(name);
        if wanted_name == "tuned" {
            return Ok(Self::Tuned(Goal::default()));
        }
        if wanted_name == "s4fifo" {
            return Ok(Self::S4Fifo(S4FifoSettings::default()));
        }
        #[cfg(feature = "own-policy")]
        if wanted_name == "own" || wanted_name == "glasscache" {
            return Ok(Self::ServerStore);
        }
        let unknown = || UnknownPolicy::Name(name.to_owned());
        Self::ALL
            .into_iter()
            .find(|kind| normalize_name(kind.fixed_name()) == wanted_name)
            .ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_in_any_case_without_hyphens() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.name().to_lowercase().replace('-', "").parse(), Ok(kind));
        }
        let with_settings: PolicyKind = "s4fifo:small=0.05,skip=0.25".parse().unwrap();
        assert_eq!(with_settings.name().parse(), Ok(with_settings));
        for (name, canonical) in
            [("Tuned", "tuned"), ("tuned:objects", "tuned"), ("tuned:bytes", "tuned:bytes")]
        {
            assert_eq!(name.parse::<PolicyKind>().unwrap().name(), canonical);
        }
        let refusal = |name: &str| name.parse::<PolicyKind>().unwrap_err().to_string();
        assert!(refusal("tuned:time").starts_with("a trace has no times of misses"));
        assert!(refusal("tuned:money").contains("use objects or bytes"));
        assert_eq!(PolicyKind::Tuned(Goal::Bytes).check_sizes(false), Err(SizesMissing));
        assert_eq!(PolicyKind::Tuned(Goal::Bytes).check_sizes(true), Ok(()));
        assert!("mru".parse::<PolicyKind>().unwrap_err().to_string().contains("\"mru\""));
    }
}
