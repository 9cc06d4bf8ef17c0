//! The form in which all statistics are sent: `STAT <name> <value>` lines and an END.

use std::fmt::Display;
use std::io::Write as _;

/// The value of a statistic.
pub(super) enum Value {
    Number(u64),
    Text(String),
    /// The row is not printed with the current settings.
    Absent,
}

impl Value {
    /// `value` if the setting that adds the row is on.
    pub(super) fn only_if(condition: bool, value: u64) -> Value {
        if condition { Value::Number(value) } else { Value::Absent }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Number(number as u64)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

/// Writes rows into a reply.
pub(super) struct Rows<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Rows<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>) -> Rows<'o> {
        Rows { out }
    }

    /// Appends one row.
    pub(super) fn write_row(&mut self, name: impl Display, value: impl Display) {
        // Writing to a vector cannot fail.
        let _ = write!(self.out, "STAT {name} {value}\r\n");
    }

    /// Appends one row, unless the value is absent.
    pub(super) fn write_value(&mut self, name: impl Display, value: Value) {
        match value {
            Value::Number(number) => self.write_row(name, number),
            Value::Text(text) => self.write_row(name, text),
            Value::Absent => {}
        }
    }

    /// Ends the table.
    pub(super) fn end(self) {
        self.out.extend_from_slice(b"END\r\n");
    }
}

/// "yes" or "no".
pub(super) fn yes_or_no(condition: bool) -> &'static str {
    if condition { "yes" } else { "no" }
}

/// "on" or "off".
pub(super) fn on_or_off(condition: bool) -> &'static str {
    if condition { "on" } else { "off" }
}
