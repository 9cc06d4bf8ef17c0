//! Key streams from the lines of a log, by a regular expression with named groups.
//!
//! The groups are `key`, `time`, `size`, `op` and `ttl`; only `key` is required. Logs have lines of other kinds, so a
//! line that does not match is left out and counted; "-" and an empty group are null, as access logs write them.

use super::layout::{Layout, LinePattern};
use super::lines::Lines;
use super::rows::{KeyCell, LineParser, LineRows, ParsedRow, RowSink};
use super::text::{TIME_FORMATS, WHOLE_NUMBER, parse_whole};
use super::{Columns, Op};
use crate::TraceError;
use regex::bytes::{Captures, Regex};
use std::io::BufRead;

/// A key stream of one matching line a row.
pub(super) fn open<R: BufRead + Send>(
    name: &str,
    source: R,
    columns_wanted: Columns,
    layout: &Layout,
    pattern: &LinePattern,
) -> LineRows<R, PatternParser> {
    let has_time = pattern.regex.capture_names().flatten().any(|name| name == "time");
    let parser = PatternParser { regex: pattern.regex.clone(), has_time };
    let (lines, names) = (Lines::new(name, source), layout.names.clone());
    LineRows::new(lines, parser, columns_wanted, names, layout.time_unit)
}

/// Parses lines that match the pattern.
pub(super) struct PatternParser {
    regex: Regex,
    has_time: bool,
}

/// A group's text, unless it is empty or a dash.
fn group_text<'l>(captures: &Captures<'l>, name: &str) -> Option<&'l [u8]> {
    let text = captures.name(name)?.as_bytes();
    (!text.is_empty() && text != b"-").then_some(text)
}

/// The operation of a method of HTTP or a command of memcached.
fn parse_op(name: &[u8]) -> Op {
    match Op::parse(name) {
        Op::Other if name.eq_ignore_ascii_case(b"head") => Op::Get,
        op => op,
    }
}

impl LineParser for PatternParser {
    fn append(
        &mut self,
        file: &str,
        line: &[u8],
        row_number: u64,
        sink: &mut RowSink<'_>,
    ) -> Result<(), TraceError> {
        let Some(captures) = self.regex.captures(line) else {
            *sink.skipped_lines += 1;
            return Ok(());
        };
        let Some(key) = captures.name("key") else {
            *sink.skipped_lines += 1;
            return Ok(());
        };
        let group_error = |column: &'static str, expected: &str, text: &[u8]| {
            let value_text = String::from_utf8_lossy(text);
            let fault = format!("expected {expected}, found \"{value_text}\"");
            TraceError::row(file, row_number, fault).in_column(column)
        };
        let parse_number = |column: &'static str| {
            let parse = |text: &[u8]| {
                parse_whole(text).ok_or_else(|| group_error(column, WHOLE_NUMBER, text))
            };
            group_text(&captures, column).map(parse).transpose()
        };
        let time_us = group_text(&captures, "time").map(|text| {
            sink.parse_time(text).ok_or_else(|| group_error("time", TIME_FORMATS, text))
        });
        let parsed_row = ParsedRow {
            row_number,
            key: KeyCell::Text(key.as_bytes()),
            time: time_us.transpose()?,
            size: parse_number("size")?,
            op: group_text(&captures, "op").map(parse_op),
            ttl: parse_number("ttl")?,
            request_count: None,
        };
        parsed_row.push(sink);
        Ok(())
    }

    fn has_time(&self) -> bool {
        self.has_time
    }
}
