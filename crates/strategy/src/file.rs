//! The words in which a strategy is written, and the file that carries one from the lab to a client.
//!
//! `fixed:206+lru:1000+children` names parts joined by `+`; the simulator takes the same words that
//! a client runs. The file is plain lines, so that people can read what they deploy:
//!
//! ```text
//! glasscache-strategy 1
//! strategy fixed:2+children
//! key c:0:0
//! key c:3:9f
//! ```

use std::fmt;
use std::str::FromStr;

use crate::policy::{AnyPolicy, Lru, LruBytes, S3Fifo};
use crate::rules::{Prefetch, Rules};

/// The first line of a strategy file of this version.
const FILE_HEAD: &str = "glasscache-strategy 1";

/// How the fixed set is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FixedRule {
    /// `fixed:n`: the n items that most requests of the first half use.
    Requests(usize),
    /// `fixed-time:n`: the same, weighed by the cost of one single get.
    Time(usize),
    /// `fixed-bytes:B`: the most time saved a byte, within B bytes.
    Bytes(u64),
    /// `fixed-hindsight:n`: `fixed:n` chosen on all requests; a bound and no choice.
    Hindsight(usize),
}

/// The local cache of each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LocalRule {
    /// None.
    #[default]
    Nothing,
    /// `lru:n`: least recently used, n items.
    Lru(usize),
    /// `lru-bytes:B`: least recently used, B bytes.
    LruBytes(u64),
    /// `s3fifo:n`: S3-FIFO, n items.
    S3Fifo(usize),
}

impl LocalRule {
    /// An empty cache of this rule.
    pub fn policy(self) -> AnyPolicy {
        match self {
            Self::Nothing => AnyPolicy::Nothing,
            Self::Lru(items) => AnyPolicy::Lru(Lru::new(items)),
            Self::LruBytes(bytes) => AnyPolicy::LruBytes(LruBytes::new(bytes)),
            Self::S3Fifo(items) => AnyPolicy::S3Fifo(S3Fifo::new(items)),
        }
    }
}

/// What a process keeps, and what it fetches together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Strategy {
    /// The fixed set, if any.
    pub fixed: Option<FixedRule>,
    /// The local cache.
    pub local: LocalRule,
    /// What is fetched along with an item.
    pub prefetch: Prefetch,
    /// The depth of the subtree fetched at the start of a request.
    pub subtree_depth: Option<u32>,
}

impl Strategy {
    /// The prefetch rules alone.
    pub fn rules(&self) -> Rules {
        Rules {
            prefetch: self.prefetch,
            subtree_depth: self.subtree_depth,
        }
    }
}

/// Why the words of a strategy were not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// A part that is no strategy.
    #[error(
        "unknown strategy `{0}`: remote, lru:N, s3fifo:N, lru-bytes:B, fixed:N, fixed-time:N, fixed-bytes:B, \
         fixed-hindsight:N, children, children-always, subtree:D, or several joined by +"
    )]
    Unknown(String),
    /// A part whose number is missing or no number.
    #[error("strategy `{0}` needs a whole number after the colon, as in `{1}`")]
    Number(String, &'static str),
    /// Two parts that exclude each other.
    #[error("strategy `{0}` has two {1}; one at most")]
    Twice(String, &'static str),
    /// A strategy file that cannot be read.
    #[error("strategy file line {line}: {problem}")]
    File {
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        problem: String,
    },
}

impl FromStr for Strategy {
    type Err = StrategyError;

    fn from_str(words: &str) -> Result<Self, StrategyError> {
        let mut strategy = Self::default();
        for part in words.split('+') {
            strategy.add(part.trim(), words)?;
        }
        Ok(strategy)
    }
}

impl Strategy {
    fn add(&mut self, part: &str, words: &str) -> Result<(), StrategyError> {
        let is_second = match Part::parse(part)? {
            Part::Remote => None,
            Part::Fixed(rule) => self.fixed.replace(rule).map(|_| "fixed sets"),
            Part::Local(rule) => {
                let old = std::mem::replace(&mut self.local, rule);
                (old != LocalRule::Nothing).then_some("local caches")
            }
            Part::Prefetch(rule) => {
                let old = std::mem::replace(&mut self.prefetch, rule);
                (old != Prefetch::Nothing).then_some("rules for children")
            }
            Part::Subtree(depth) => self.subtree_depth.replace(depth).map(|_| "subtrees"),
        };
        is_second.map_or(Ok(()), |what| Err(StrategyError::Twice(words.into(), what)))
    }
}

/// One word of a strategy.
enum Part {
    Remote,
    Fixed(FixedRule),
    Local(LocalRule),
    Prefetch(Prefetch),
    Subtree(u32),
}

impl Part {
    fn parse(part: &str) -> Result<Self, StrategyError> {
        let (name, number) = part
            .split_once(':')
            .map_or((part, None), |(name, n)| (name, Some(n)));
        let items = || items(number, part);
        let bytes = || bytes(number, part);
        Ok(match (name, number) {
            ("remote", None) => Self::Remote,
            ("children", None) => Self::Prefetch(Prefetch::Children),
            ("children-always", None) => Self::Prefetch(Prefetch::ChildrenAlways),
            ("fixed", _) => Self::Fixed(FixedRule::Requests(items()?)),
            ("fixed-time", _) => Self::Fixed(FixedRule::Time(items()?)),
            ("fixed-hindsight", _) => Self::Fixed(FixedRule::Hindsight(items()?)),
            ("fixed-bytes", _) => Self::Fixed(FixedRule::Bytes(bytes()?)),
            ("lru", _) => Self::Local(LocalRule::Lru(items()?)),
            ("s3fifo", _) => Self::Local(LocalRule::S3Fifo(items()?)),
            ("lru-bytes", _) => Self::Local(LocalRule::LruBytes(bytes()?)),
            ("subtree", _) => Self::Subtree(items()? as u32),
            _ => return Err(StrategyError::Unknown(part.into())),
        })
    }
}

fn items(number: Option<&str>, part: &str) -> Result<usize, StrategyError> {
    let parsed = number.and_then(|n| n.parse::<u32>().ok());
    parsed
        .map(|n| n as usize)
        .ok_or_else(|| StrategyError::Number(part.into(), "lru:206"))
}

fn bytes(number: Option<&str>, part: &str) -> Result<u64, StrategyError> {
    let parsed = number.and_then(parse_bytes);
    parsed.ok_or_else(|| StrategyError::Number(part.into(), "fixed-bytes:8M"))
}

/// Reads a number of bytes, with `k`, `m` or `g` of either case for powers of 1024.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()?.to_ascii_lowercase() {
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        _ => 0,
    };
    let digits = if shift == 0 {
        text
    } else {
        &text[..text.len() - 1]
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.fixed.map(|rule| match rule {
            FixedRule::Requests(n) => format!("fixed:{n}"),
            FixedRule::Time(n) => format!("fixed-time:{n}"),
            FixedRule::Bytes(b) => format!("fixed-bytes:{b}"),
            FixedRule::Hindsight(n) => format!("fixed-hindsight:{n}"),
        }));
        match self.local {
            LocalRule::Nothing => {}
            LocalRule::Lru(n) => parts.push(format!("lru:{n}")),
            LocalRule::LruBytes(b) => parts.push(format!("lru-bytes:{b}")),
            LocalRule::S3Fifo(n) => parts.push(format!("s3fifo:{n}")),
        }
        match self.prefetch {
            Prefetch::Nothing => {}
            Prefetch::Children => parts.push("children".into()),
            Prefetch::ChildrenAlways => parts.push("children-always".into()),
        }
        parts.extend(self.subtree_depth.map(|depth| format!("subtree:{depth}")));
        if parts.is_empty() {
            f.write_str("remote")
        } else {
            f.write_str(&parts.join("+"))
        }
    }
}

/// A strategy with the fixed set that the lab chose for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrategyFile {
    /// The strategy.
    pub strategy: Strategy,
    /// The keys of the fixed set.
    pub fixed_keys: Vec<String>,
}

impl FromStr for StrategyFile {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        let problem = |line: usize, problem: String| StrategyError::File { line, problem };
        let mut strategy = None;
        let mut fixed_keys = Vec::new();
        if text.lines().next() != Some(FILE_HEAD) {
            return Err(problem(1, format!("must be `{FILE_HEAD}`")));
        }
        for (index, line) in text.lines().enumerate().skip(1) {
            match line.split_once(' ') {
                Some(("strategy", words)) => {
                    strategy = Some(
                        words
                            .parse()
                            .map_err(|e| problem(index + 1, format!("{e}")))?,
                    );
                }
                Some(("key", key)) => fixed_keys.push(key.to_owned()),
                _ if line.is_empty() || line.starts_with('#') => {}
                _ => {
                    return Err(problem(
                        index + 1,
                        "must begin with `strategy`, `key` or `#`".into(),
                    ));
                }
            }
        }
        let strategy =
            strategy.ok_or_else(|| problem(2, "no line begins with `strategy`".into()))?;
        Ok(Self {
            strategy,
            fixed_keys,
        })
    }
}

impl fmt::Display for StrategyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FILE_HEAD}\nstrategy {}", self.strategy)?;
        self.fixed_keys
            .iter()
            .try_for_each(|key| writeln!(f, "key {key}"))
    }
}
