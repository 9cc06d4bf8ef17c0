//! The file that transfers a strategy from the lab to a client: plain lines, so that people can read what they deploy.
//!
//! ```text
//! glasscache-strategy 1
//! strategy fixed:2+children
//! forecast calls 3.21 3.1 3.33
//! key c:0:0
//! key c:3:9f
//! child c:0:0 c:1:4
//! ```
//!
//! Rules that were learned have lines of their own, `together <key pattern> <key pattern> ...` and
//! `together-page <key pattern> <key pattern> ...`; [`crate::together`] describes the patterns. What is not kept
//! ([`crate::never_kept`]) is in lines of `never <key or pattern>`, `never-prefix <prefix>` and `allow-prefix <prefix>`.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use crate::never_kept::NeverRules;
pub use crate::notation::{FixedRule, LocalRule, Strategy, StrategyError, parse_bytes};
use crate::together::{TogetherRule, TogetherRules, TogetherRulesBuilder};

/// The first word of a strategy file; the number of its version follows.
const FILE_MAGIC: &str = "glasscache-strategy";

/// The version that is read and written here.
const VERSION: &str = "1";

/// A strategy with what the lab chose for it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StrategyFile {
    /// The strategy.
    pub strategy: Strategy,
    /// What the simulator expects of it.
    pub forecast: Vec<Forecast>,
    /// The keys of the fixed set.
    pub fixed_keys: Vec<String>,
    /// Pairs of a parent and one of its children, for the rules that fetch children; each level of a subtree is in
    /// this order.
    pub children: Vec<(String, String)>,
    /// The learned rules.
    pub learned: LearnedTogetherRules,
    /// What is not kept, besides sessions.
    pub never: NeverRules,
}

/// Rules that were learned from a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LearnedTogetherRules {
    /// What is fetched with an item that has to be fetched.
    pub with_items: TogetherRules,
    /// What is fetched at the start of a request about a page.
    pub with_pages: TogetherRules,
}

/// A figure that the simulator expects of a request, with its interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// Its name, such as `calls` or `added_ms_p95`.
    pub figure: String,
    /// The expected value.
    pub value: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end of its interval.
    pub high: f64,
}

impl FromStr for StrategyFile {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        let file_error = |line: usize, problem: String| StrategyError::File { line, problem };
        let mut lines = text.lines().enumerate();
        check_first_line(lines.next().map_or("", |(_, first_line)| first_line))
            .map_err(|reason| file_error(1, reason))?;
        let (mut strategy, mut file) = (None, Self::default());
        let (mut fixed_keys, mut parent_by_child) = (HashSet::new(), ParentByChild::default());
        let (mut with_items, mut with_pages) =
            (TogetherRulesBuilder::default(), TogetherRulesBuilder::default());
        for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let (line_kind, arguments) = line.split_once(' ').unwrap_or((line, ""));
            let invalid_line =
                |reason: String| file_error(index + 1, format!("`{line_kind}` {reason}"));
            let parse_rule = || {
                TogetherRule::parse(arguments).map_err(|reason| invalid_line(reason.to_string()))
            };
            match line_kind {
                "strategy" if strategy.is_some() => {
                    return Err(invalid_line("is there twice; one at most".to_owned()));
                }
                "strategy" => {
                    let read: Result<Strategy, _> = arguments.parse();
                    let runnable = read.and_then(|read| read.check_runnable().map(|()| read));
                    strategy = Some(runnable.map_err(|error| invalid_line(format!("{error}")))?);
                }
                "key" if fixed_keys.insert(arguments) => file.fixed_keys.push(arguments.to_owned()),
                "key" => {} // it is in the fixed set already
                "child" => {
                    let (parent, child) = parse_child(arguments).map_err(invalid_line)?;
                    if parent_by_child.add(parent, child).map_err(invalid_line)? {
                        file.children.push((parent.to_owned(), child.to_owned()));
                    }
                }
                "forecast" => file.forecast.push(parse_forecast(arguments).map_err(invalid_line)?),
                "never" if !arguments.is_empty() => {
                    file.never.keys_and_patterns.insert(arguments.to_owned());
                }
                "never-prefix" => {
                    file.never.prefixes.push(parse_prefix(arguments).map_err(invalid_line)?);
                }
                "allow-prefix" => {
                    file.never
                        .allowed_prefixes
                        .push(parse_prefix(arguments).map_err(invalid_line)?);
                }
                "together" => with_items.add(&parse_rule()?),
                "together-page" => with_pages.add(&parse_rule()?),
                _ => return Err(file_error(index + 1, unknown_line_message(line_kind))),
            }
        }
        file.strategy =
            strategy.ok_or_else(|| file_error(2, "no line begins with `strategy`".into()))?;
        file.learned =
            LearnedTogetherRules { with_items: with_items.build(), with_pages: with_pages.build() };
        Ok(file)
    }
}

fn check_first_line(first_line: &str) -> Result<(), String> {
    match first_line.split_once(' ') {
        Some((FILE_MAGIC, VERSION)) => Ok(()),
        Some((FILE_MAGIC, unknown_version)) => Err(format!(
            "version `{unknown_version}` is unknown; save the strategy again with the version of glasscache that reads it"
        )),
        _ => Err(format!("must be `{FILE_MAGIC} {VERSION}`; write the file with simulate --save")),
    }
}

fn unknown_line_message(line_kind: &str) -> String {
    format!(
        "unknown rule `{line_kind}`: a line begins with strategy, forecast, key, child, together, together-page, never, \
         never-prefix, allow-prefix or #; save the strategy again with the version of glasscache that reads it"
    )
}

fn parse_prefix(prefix: &str) -> Result<String, String> {
    if prefix.is_empty() {
        return Err("needs a prefix of keys".to_owned());
    }
    Ok(prefix.to_owned())
}

fn parse_child(arguments: &str) -> Result<(&str, &str), String> {
    let keys = arguments.split_once(' ').filter(|(parent, child)| {
        let is_key = |key: &str| !key.is_empty() && !key.contains(' ');
        is_key(parent) && is_key(child)
    });
    keys.ok_or_else(|| "needs two keys, a parent and its child".to_owned())
}

/// The parent of each child. A key with two parents would be fetched twice, and a cycle would be fetched without end.
#[derive(Default)]
struct ParentByChild<'f>(HashMap<&'f str, &'f str>);

impl<'f> ParentByChild<'f> {
    /// Adds a child; false if it is there already, an error if the file would no longer describe a tree.
    fn add(&mut self, parent: &'f str, child: &'f str) -> Result<bool, String> {
        match self.0.get(child) {
            Some(&known_parent) if known_parent == parent => return Ok(false),
            Some(known_parent) => {
                return Err(format!(
                    "names {child} under {known_parent} and under {parent}; save the strategy again"
                ));
            }
            None => {}
        }
        let mut ancestor = Some(parent);
        while let Some(current) = ancestor {
            if current == child {
                return Err(format!("makes `{child}` its own ancestor"));
            }
            ancestor = self.0.get(current).copied();
        }
        self.0.insert(child, parent);
        Ok(true)
    }
}

fn parse_forecast(arguments: &str) -> Result<Forecast, String> {
    let mut words = arguments.split(' ');
    let figure = words.next().unwrap_or_default().to_owned();
    let numbers: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
    let is_finite = numbers.iter().all(|number| number.is_finite());
    match numbers[..] {
        [_, low, high] if low > high => Err(format!("has an interval from {low} to {high}")),
        [value, low, high] if is_finite && arguments.split(' ').count() == 4 => {
            Ok(Forecast { figure, value, low, high })
        }
        _ => Err("needs a name, a value and the two ends of its interval".to_owned()),
    }
}

impl fmt::Display for StrategyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FILE_MAGIC} {VERSION}\nstrategy {}", self.strategy)?;
        for figure_forecast in &self.forecast {
            writeln!(
                f,
                "forecast {} {} {} {}",
                figure_forecast.figure,
                figure_forecast.value,
                figure_forecast.low,
                figure_forecast.high
            )?;
        }
        for key in &self.fixed_keys {
            writeln!(f, "key {key}")?;
        }
        for (parent, child) in &self.children {
            writeln!(f, "child {parent} {child}")?;
        }
        for rule in self.learned.with_items.rules() {
            writeln!(f, "together {rule}")?;
        }
        for rule in self.learned.with_pages.rules() {
            writeln!(f, "together-page {rule}")?;
        }
        write_never_rules(&self.never, f)
    }
}

fn write_never_rules(never: &NeverRules, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for prefix in &never.prefixes {
        writeln!(f, "never-prefix {prefix}")?;
    }
    for prefix in &never.allowed_prefixes {
        writeln!(f, "allow-prefix {prefix}")?;
    }
    never.keys_and_patterns.iter().try_for_each(|key| writeln!(f, "never {key}"))
}
