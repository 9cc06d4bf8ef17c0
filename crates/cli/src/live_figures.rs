//! What a glasscache knows of its own load, for commands that work with any memcached: nothing where a server has none.

use std::collections::BTreeMap;

use glasscache_lab::report::ReportTable;
use glasscache_lab::text::{format_bytes, format_count, format_duration, format_percent};
use serde_json::{Map, Value, json};

use crate::server_reader::Rows;

/// The rows of one entry of a list.
type Entry = BTreeMap<String, String>;

/// The entries of a list, whose rows have `prefix` and the number of the entry before their names.
fn read_entries(rows: &Rows, prefix: &str) -> Vec<Entry> {
    let mut entries: BTreeMap<u32, Entry> = BTreeMap::new();
    for (name, value) in rows {
        let numbered = name.strip_prefix(prefix).and_then(|name| name.split_once(':'));
        if let Some((number, name)) = numbered
            && let Ok(number) = number.parse()
        {
            entries.entry(number).or_default().insert(name.to_owned(), value.clone());
        }
    }
    entries.into_values().collect()
}

/// What the server expects of other sizes, a sentence each, from the rows of `stats curve`; the most memory first.
pub(crate) fn read_advice(curve_rows: &Rows) -> Vec<String> {
    let entries = read_entries(curve_rows, "advice:").into_iter();
    entries.filter_map(|mut entry| entry.remove("sentence")).collect()
}

/// The prefixes of keys, from the rows of `stats prefixes`; that with most gets first.
pub(crate) struct Prefixes(Vec<Entry>);

impl Prefixes {
    /// Those of the rows.
    pub(crate) fn of(rows: &Rows) -> Prefixes {
        Prefixes(read_entries(rows, ""))
    }

    /// Only those that `is_wanted`.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.0.retain(|entry| entry.get("prefix").is_some_and(|prefix| is_wanted(prefix)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A table of them.
    pub(crate) fn to_table(&self, title: &str) -> ReportTable {
        let header = ["prefix", "gets", "hits", "sent", "item", "no TTL", "TTL"];
        let table = ReportTable::new(title, header, self.0.iter().map(to_cells));
        ReportTable { is_best_first: true, ..table }
    }

    /// A row for each, with the names of `stats prefixes`.
    pub(crate) fn to_documents(&self) -> Vec<Value> {
        let to_document = |entry: &Entry| {
            let number =
                |value: &String| value.parse::<f64>().map_or_else(|_| json!(value), to_number);
            let fields = entry.iter().map(|(name, value)| {
                (name.clone(), if name == "prefix" { json!(value) } else { number(value) })
            });
            Value::Object(fields.collect::<Map<_, _>>())
        };
        self.0.iter().map(to_document).collect()
    }
}

/// Whole numbers without a fraction.
fn to_number(number: f64) -> Value {
    if number.fract() == 0.0 { json!(number as u64) } else { json!(number) }
}

fn to_cells(entry: &Entry) -> Vec<String> {
    let number = |name: &str| entry.get(name).and_then(|value| value.parse::<f64>().ok());
    let whole = |name: &str| number(name).unwrap_or(0.0) as u64;
    let prefix = entry.get("prefix").filter(|prefix| !prefix.is_empty());
    let has_ttl = number("no_ttl_share").is_some_and(|share| share < 1.0);
    let ttl = std::time::Duration::from_secs(whole("ttl_s_median"));
    vec![
        prefix.map_or("(none)", String::as_str).to_owned(),
        format_count(whole("requests")),
        format_percent(number("hit_ratio").filter(|_| whole("requests") > 0)),
        format_bytes(whole("bytes")),
        format_bytes(whole("item_bytes_mean")),
        format_percent(number("no_ttl_share").filter(|_| whole("sets") > 0)),
        if has_ttl { format_duration(ttl) } else { "-".to_owned() },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Detail, format_report};
    use glasscache_lab::report::Report;

    fn rows(rows: &[(&str, &str)]) -> Rows {
        rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn advice_stands_in_the_order_of_the_server() {
        let curve = rows(&[
            ("state", "ok"),
            ("0:memory_bytes", "1"),
            ("advice:10:sentence", "last"),
            ("advice:2:sentence", "first"),
        ]);
        assert_eq!(read_advice(&curve), ["first", "last"]);
        assert!(read_advice(&rows(&[("state", "warming")])).is_empty());
    }

    #[test]
    fn prefixes_have_a_table_that_fits_80_columns_and_rows_in_json() {
        let mut entries = Vec::new();
        for (number, prefix) in ["a-rather-long-prefix:", "", "x:"].into_iter().enumerate() {
            for (name, value) in [
                ("prefix", prefix),
                ("requests", "12345678"),
                ("hits", "12000000"),
                ("sets", "345678"),
                ("bytes", "123456789012"),
                ("hit_ratio", "0.972000"),
                ("item_bytes_mean", "4096"),
                ("no_ttl_share", "0.250000"),
                ("ttl_s_median", "3600"),
            ] {
                entries.push((format!("{number}:{name}"), value.to_owned()));
            }
        }
        let mut prefixes = Prefixes::of(&entries);
        prefixes.retain(|prefix| prefix != "x:");
        let table = prefixes.to_table("The last hour:");
        let report = Report { tables: vec![table], ..Report::default() };
        let text = format_report(&report, Detail::default());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("(none)") && text.contains("97.2 %"), "{text}");
        let documents = prefixes.to_documents();
        assert_eq!(documents[0]["requests"], json!(12_345_678));
        assert_eq!((documents.len(), &documents[1]["hit_ratio"]), (2, &json!(0.972)));
    }
}
