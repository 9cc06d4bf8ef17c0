//! The policies by name.

use std::fmt;
use std::str::FromStr;

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
    /// The server's own store; the capacity is all of its memory. Not in [`PolicyKind::ALL`].
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
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "LRU",
            Self::Fifo => "FIFO",
            Self::Clock => "Clock",
            Self::Lfu => "LFU",
            Self::Sieve => "SIEVE",
            Self::S3Fifo => "S3-FIFO",
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
        matches!(self, Self::Lhd | Self::LeCar | Self::BeladySize)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// An unknown policy name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no policy is called \"{0}\"; there are {list}", list = list_names())]
pub struct UnknownPolicy(String);

fn list_names() -> String {
    PolicyKind::ALL.map(PolicyKind::name).join(", ")
}

/// The letters and digits of a name, in lower case.
fn normalize_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    /// Reads a name in any case, with or without hyphens.
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let wanted_name = normalize_name(name);
        #[cfg(feature = "own-policy")]
        if wanted_name == "own" || wanted_name == "glasscache" {
            return Ok(Self::ServerStore);
        }
        let unknown = || UnknownPolicy(name.to_owned());
        Self::ALL
            .into_iter()
            .find(|kind| normalize_name(kind.name()) == wanted_name)
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
        assert!("mru".parse::<PolicyKind>().unwrap_err().to_string().contains("\"mru\""));
    }
}
