//! One fact of a trace: its name, its value in JSON, and how it is printed.

use glasscache_lab::text::format_count;
use serde_json::Value;

/// One thing known of a trace.
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) value: Value,
    /// How it is printed, where that is not the value.
    pub(super) printed_text: Option<String>,
    /// Whether a table has it, so that it is not listed.
    pub(super) is_in_table: bool,
}

impl Fact {
    /// A fact that is printed as its value.
    pub(super) fn new(name: &'static str, value: impl Into<Value>) -> Self {
        Self { name, value: value.into(), printed_text: None, is_in_table: false }
    }

    /// A fact that is printed as this text, or as unknown.
    pub(super) fn with_printed_text(
        name: &'static str,
        value: impl Into<Value>,
        printed_text: Option<String>,
    ) -> Self {
        Self { printed_text, ..Self::new(name, value) }
    }

    /// A fact that a table shows.
    pub(super) fn in_table(name: &'static str, rows: impl Iterator<Item = Value>) -> Self {
        Self { is_in_table: true, ..Self::new(name, rows.collect::<Value>()) }
    }

    /// Its value for a reader.
    pub(super) fn format_value(&self) -> String {
        if let Some(printed_text) = &self.printed_text {
            return printed_text.clone();
        }
        match &self.value {
            Value::Null => "unknown".to_owned(),
            Value::String(text) => text.clone(),
            Value::Bool(flag) => if *flag { "yes" } else { "no" }.to_owned(),
            Value::Object(map) => {
                let pairs = map.iter().map(|(name, number)| {
                    format!("{name} {}", format_count(number.as_u64().unwrap_or(0)))
                });
                pairs.collect::<Vec<_>>().join(", ")
            }
            value => match (value.as_u64(), value.as_f64()) {
                (Some(whole), _) => format_count(whole),
                (None, Some(real)) => format!("{real:.4}"),
                _ => value.to_string(),
            },
        }
    }
}
