//! The notation of strategies: `fixed:206+lru:1000+children` has terms joined by `+`.
//!
//! The simulator and a client use the same notation; [`crate::file`] transfers a strategy from one to the other.

use std::fmt;
use std::str::FromStr;

use crate::policy::{AnyPolicy, Lru, LruBytes, S3Fifo};
use crate::rules::{ChildrenRule, PrefetchRules};
use crate::s4fifo_settings::{InvalidS4FifoSetting, S4FifoSettings};

/// How the fixed set is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FixedRule {
    /// `fixed:n`: the n items that most requests of the first half use.
    Requests(usize),
    /// `fixed-time:n`: the same, weighed by the cost of one single get.
    Time(usize),
    /// `fixed-bytes:B`: the most time saved a byte, within B bytes.
    Bytes(u64),
    /// `fixed-hindsight:n`: `fixed:n` chosen on all requests; an upper bound, not a usable choice.
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
    /// `s4fifo:n` and `s4fifo:n:small=0.05,skip=0.25`: S4-FIFO, n items; only the simulator has it.
    S4Fifo(usize, S4FifoSettings),
    /// `tuned:n`: the server's policy with settings that follow the load, n items; only the simulator has it.
    Tuned(usize),
}

impl LocalRule {
    /// The policy of this rule, which keeps nothing yet; one that only the simulator has never keeps anything
    /// ([`Strategy::check_runnable`]).
    pub fn new_policy(self) -> AnyPolicy {
        match self {
            Self::Nothing | Self::S4Fifo(..) | Self::Tuned(_) => AnyPolicy::Nothing,
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
    pub children: ChildrenRule,
    /// The depth of the subtree fetched at the start of a request.
    pub subtree_depth: Option<u32>,
    /// Rules learned from the log ([`crate::together`]): the least share, in percent, of a trigger's uses that a
    /// companion must have.
    pub companion_share_percent: Option<u8>,
}

impl Strategy {
    /// An error if only the simulator has its policy, so that no client can run it.
    pub fn check_runnable(&self) -> Result<(), StrategyError> {
        match self.local {
            LocalRule::S4Fifo(..) | LocalRule::Tuned(_) => {
                Err(StrategyError::SimulatorOnly(self.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// The prefetch rules alone.
    pub fn prefetch_rules(&self) -> PrefetchRules {
        PrefetchRules {
            children: self.children,
            subtree_depth: self.subtree_depth,
            fetches_companions: self.companion_share_percent.is_some(),
        }
    }
}

/// Why a strategy could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// An unknown term.
    #[error(
        "unknown strategy `{0}`: remote, lru:N, s3fifo:N, s4fifo:N, tuned:N, lru-bytes:B, fixed:N, fixed-time:N, \
         fixed-bytes:B, fixed-hindsight:N, children, children-always, subtree:D, together:P, or several joined by +"
    )]
    Unknown(String),
    /// A term whose number is missing or invalid.
    #[error("strategy `{0}` needs a whole number after the colon, as in `{1}`")]
    Number(String, &'static str),
    /// A share that is not a percentage.
    #[error(
        "strategy `{0}` needs a share from 1 to 100 percent after the colon, as in `together:60`"
    )]
    Share(String),
    /// A setting of `s4fifo` that is unknown or out of its range.
    #[error("strategy `{0}`: {1}")]
    Setting(String, InvalidS4FifoSetting),
    /// A policy that no client has.
    #[error(
        "strategy `{0}` is for the simulator alone, no client has its policy; choose lru, lru-bytes or s3fifo"
    )]
    SimulatorOnly(String),
    /// Two terms that exclude each other.
    #[error("strategy `{0}` has two {1}; one at most")]
    Duplicate(String, &'static str),
    /// The term `remote` joined with others, on which it has no effect.
    #[error("strategy `{0}`: `remote` means that nothing is kept; write it alone or leave it out")]
    RemoteWithOthers(String),
    /// A strategy file that cannot be read.
    #[error("reading the strategy file failed in line {line}: {problem}")]
    File {
        /// Counted from 1.
        line: usize,
        /// What is wrong there, and what to do.
        problem: String,
    },
}

impl FromStr for Strategy {
    type Err = StrategyError;

    fn from_str(notation: &str) -> Result<Self, StrategyError> {
        let terms: Vec<&str> = notation.split('+').map(str::trim).collect();
        let mut strategy = Self::default();
        for term in &terms {
            strategy.add_term(term, notation)?;
        }
        if terms.len() > 1 && terms.contains(&"remote") {
            return Err(StrategyError::RemoteWithOthers(notation.into()));
        }
        Ok(strategy)
    }
}

impl Strategy {
    fn add_term(&mut self, term: &str, notation: &str) -> Result<(), StrategyError> {
        let duplicate_kind = match Term::parse(term)? {
            Term::Remote => None,
            Term::Fixed(rule) => self.fixed.replace(rule).map(|_| "fixed sets"),
            Term::Local(rule) => {
                let previous = std::mem::replace(&mut self.local, rule);
                (previous != LocalRule::Nothing).then_some("local caches")
            }
            Term::Children(rule) => {
                let previous = std::mem::replace(&mut self.children, rule);
                (previous != ChildrenRule::Never).then_some("rules for children")
            }
            Term::Subtree(depth) => self.subtree_depth.replace(depth).map(|_| "subtrees"),
            Term::Together(percent) => {
                self.companion_share_percent.replace(percent).map(|_| "shares of learned rules")
            }
        };
        duplicate_kind.map_or(Ok(()), |kind| Err(StrategyError::Duplicate(notation.into(), kind)))
    }
}

/// One term of a strategy.
enum Term {
    Remote,
    Fixed(FixedRule),
    Local(LocalRule),
    Children(ChildrenRule),
    Subtree(u32),
    Together(u8),
}

impl Term {
    fn parse(term: &str) -> Result<Self, StrategyError> {
        let (name, argument) =
            term.split_once(':').map_or((term, None), |(name, argument)| (name, Some(argument)));
        let number = |example| parse_number_argument(argument, term, example);
        let bytes = |example| parse_bytes_argument(argument, term, example);
        Ok(match (name, argument) {
            ("remote", None) => Self::Remote,
            ("children", None) => Self::Children(ChildrenRule::WhenMissing),
            ("children-always", None) => Self::Children(ChildrenRule::Always),
            ("fixed", _) => Self::Fixed(FixedRule::Requests(number("fixed:206")?)),
            ("fixed-time", _) => Self::Fixed(FixedRule::Time(number("fixed-time:206")?)),
            ("fixed-hindsight", _) => {
                Self::Fixed(FixedRule::Hindsight(number("fixed-hindsight:206")?))
            }
            ("fixed-bytes", _) => Self::Fixed(FixedRule::Bytes(bytes("fixed-bytes:8M")?)),
            ("lru", _) => Self::Local(LocalRule::Lru(number("lru:206")?)),
            ("s3fifo", _) => Self::Local(LocalRule::S3Fifo(number("s3fifo:206")?)),
            ("s4fifo", _) => Self::Local(parse_s4fifo(argument, term)?),
            ("tuned", _) => Self::Local(LocalRule::Tuned(number("tuned:206")?)),
            ("lru-bytes", _) => Self::Local(LocalRule::LruBytes(bytes("lru-bytes:8M")?)),
            ("subtree", _) => Self::Subtree(number("subtree:2")? as u32),
            ("together", _) => Self::Together(parse_percent_argument(argument, term)?),
            _ => return Err(StrategyError::Unknown(term.into())),
        })
    }
}

fn parse_number_argument(
    argument: Option<&str>,
    term: &str,
    example: &'static str,
) -> Result<usize, StrategyError> {
    let parsed = argument.and_then(|argument| argument.parse::<u32>().ok());
    parsed.map(|number| number as usize).ok_or_else(|| StrategyError::Number(term.into(), example))
}

/// Reads the number of items, and after a second colon the settings.
fn parse_s4fifo(argument: Option<&str>, term: &str) -> Result<LocalRule, StrategyError> {
    let items_and_settings = argument.and_then(|argument| argument.split_once(':'));
    let (items, settings) = match items_and_settings {
        Some((items, settings)) => (Some(items), settings.parse()),
        None => (argument, Ok(S4FifoSettings::default())),
    };
    let items = parse_number_argument(items, term, "s4fifo:206:small=0.05,skip=0.25")?;
    settings
        .map(|settings| LocalRule::S4Fifo(items, settings))
        .map_err(|error| StrategyError::Setting(term.into(), error))
}

fn parse_bytes_argument(
    argument: Option<&str>,
    term: &str,
    example: &'static str,
) -> Result<u64, StrategyError> {
    let parsed = argument.and_then(parse_bytes);
    parsed.ok_or_else(|| StrategyError::Number(term.into(), example))
}

fn parse_percent_argument(argument: Option<&str>, term: &str) -> Result<u8, StrategyError> {
    let parsed = argument.and_then(|argument| argument.parse().ok());
    parsed
        .filter(|percent| (1..=100).contains(percent))
        .ok_or_else(|| StrategyError::Share(term.into()))
}

/// Reads a number of bytes, with `k`, `m` or `g` of either case for powers of 1024.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()?.to_ascii_lowercase() {
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut terms = Vec::new();
        terms.extend(self.fixed.map(|rule| match rule {
            FixedRule::Requests(items) => format!("fixed:{items}"),
            FixedRule::Time(items) => format!("fixed-time:{items}"),
            FixedRule::Bytes(bytes) => format!("fixed-bytes:{bytes}"),
            FixedRule::Hindsight(items) => format!("fixed-hindsight:{items}"),
        }));
        match self.local {
            LocalRule::Nothing => {}
            LocalRule::Lru(items) => terms.push(format!("lru:{items}")),
            LocalRule::LruBytes(bytes) => terms.push(format!("lru-bytes:{bytes}")),
            LocalRule::S3Fifo(items) => terms.push(format!("s3fifo:{items}")),
            LocalRule::S4Fifo(items, settings) if settings == S4FifoSettings::default() => {
                terms.push(format!("s4fifo:{items}"));
            }
            LocalRule::S4Fifo(items, settings) => terms.push(format!("s4fifo:{items}:{settings}")),
            LocalRule::Tuned(items) => terms.push(format!("tuned:{items}")),
        }
        match self.children {
            ChildrenRule::Never => {}
            ChildrenRule::WhenMissing => terms.push("children".into()),
            ChildrenRule::Always => terms.push("children-always".into()),
        }
        terms.extend(self.subtree_depth.map(|depth| format!("subtree:{depth}")));
        terms.extend(self.companion_share_percent.map(|percent| format!("together:{percent}")));
        if terms.is_empty() { f.write_str("remote") } else { f.write_str(&terms.join("+")) }
    }
}
