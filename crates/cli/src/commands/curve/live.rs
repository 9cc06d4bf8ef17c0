//! `curve SERVER --live`: the curve that a running glasscache measures of its own policy, and what more or less memory
//! would bring, also as money.

use std::collections::HashMap;

use glasscache_findings::curve::{Curve, CurvePoint};
use glasscache_lab::report::{Report, ReportTable};
use glasscache_lab::text::{format_bytes, format_count, format_decimal, format_percent};
use serde_json::{Map, Value, json};

use super::Args;
use crate::output::{Exit, Failure, Output};
use crate::report::{Detail, print_report, write_report_page};
use crate::server_reader::{ServerReader, borrow_rows};
use crate::target::Target;

/// Characters of the longest bar of the drawing.
const BAR_WIDTH: f64 = 40.0;
/// Seconds in a month, an average one.
const MONTH_S: f64 = 30.44 * 86_400.0;
/// Bytes in a GiB.
const GIB: f64 = (1_u64 << 30) as f64;

/// The numbers at the head of `stats curve`, which have the same names in JSON.
const NUMBERS: [&str; 8] = [
    "memory_bytes",
    "miss_ratio",
    "gets_per_second",
    "window_s",
    "miss_time_s",
    "working_set_bytes",
    "unlimited_hit_ratio",
    "sampled_items",
];

/// The reply to `stats curve`.
struct LiveCurve<'r> {
    rows: HashMap<&'r str, &'r str>,
    curve: Curve,
}

/// Advice of the server: another size, and what it brings.
struct Advice {
    memory_bytes: u64,
    avoided_per_second: f64,
    /// Seconds a second that clients would spend less on filling misses.
    avoided_backend_s: Option<f64>,
    sentence: String,
}

/// Prints the curve of the server that is named in place of a trace.
pub(super) fn run(args: &Args, out: &Output) -> Result<Exit, Failure> {
    let target = Target {
        server: args.trace_path.to_string_lossy().into_owned(),
        timeout_ms: args.timeout_ms.unwrap_or(1000),
        access: args.access.clone(),
    };
    let readers = ServerReader::open_all(&target)?;
    let [reader] = &readers[..] else {
        return Err(Failure::usage("--live prints the curve of one server; name one"));
    };
    let rows = reader.read_rows("curve").map_err(|failure| {
        failure.or_hint("only a glasscache has a live curve; of a memcached, record its load (glasscache record)")
    })?;
    let live_curve = LiveCurve::of(&rows);
    if live_curve.state().is_empty() {
        let message = format!("{reader} has no live curve");
        return Err(Failure::new(Exit::BadData, message).with_hint(
            "only a glasscache has one; of a memcached, record its load (glasscache record)",
        ));
    }
    let report = live_curve.build_report(&reader.to_string(), args.gib_month);
    print_report(&report, out, Detail::default())?;
    write_report_page(report, args.html.as_deref(), &[])?;
    Ok(if live_curve.state() == "ok" { Exit::Success } else { Exit::Finding })
}

impl<'r> LiveCurve<'r> {
    fn of(rows: &'r [(String, String)]) -> LiveCurve<'r> {
        LiveCurve { rows: borrow_rows(rows).collect(), curve: Curve::of(borrow_rows(rows)) }
    }

    fn state(&self) -> &str {
        self.rows.get("state").copied().unwrap_or_default()
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.rows.get(name)?.parse().ok()
    }

    fn bytes(&self, name: &str) -> u64 {
        self.number(name).unwrap_or(0.0) as u64
    }

    /// The miss ratio of LRU at the size of a point.
    fn lru_miss_ratio(&self, point: &CurvePoint) -> Option<f64> {
        let size = point.memory_bytes.to_string();
        let is_of_size = |(name, value): &(&&str, &&str)| {
            let number = name.strip_suffix(":memory_bytes");
            number.is_some_and(|number| number.parse::<u32>().is_ok()) && **value == size
        };
        let (name, _) = self.rows.iter().find(is_of_size)?;
        self.number(&name.replace("memory_bytes", "lru_miss_ratio"))
    }

    /// The advice of the server, in its order.
    fn advice(&self) -> Vec<Advice> {
        let to_advice = |index: usize| {
            let field = |name: &str| self.rows.get(format!("advice:{index}:{name}").as_str());
            Some(Advice {
                memory_bytes: field("memory_bytes")?.parse().ok()?,
                avoided_per_second: field("avoided_per_second")?.parse().ok()?,
                avoided_backend_s: field("avoided_backend_s")
                    .and_then(|time_s| time_s.parse().ok()),
                sentence: (*field("sentence")?).to_owned(),
            })
        };
        (0..100).map_while(to_advice).collect()
    }

    fn build_report(&self, server: &str, gib_month: Option<f64>) -> Report {
        let limit_bytes = self.bytes("memory_bytes");
        let advice = self.advice();
        let to_sentence = |advice: &Advice| {
            let money = format_money(advice, limit_bytes, gib_month);
            format!("{}. {money}", advice.sentence.trim_end_matches('.')).trim_end().to_owned()
        };
        Report {
            title: format!("Live curve of {server}"),
            sentence: self.format_sentence(server),
            tables: vec![self.build_table()],
            findings: advice.iter().map(to_sentence).collect(),
            notes: self.list_notes(),
            result: self.to_document(server, &advice),
            ..Report::default()
        }
    }

    fn format_sentence(&self, server: &str) -> String {
        match self.state() {
            "ok" => format!(
                "{server}: {} of the gets miss at {}.",
                format_percent(self.number("miss_ratio")),
                format_bytes(self.bytes("memory_bytes"))
            ),
            "too_few" => format!("{server}: too few items for a curve."),
            "warming" => {
                format!("{server}: no curve yet, the memory is still filling after the start.")
            }
            "resized" => format!("{server}: no curve yet, the memory was resized a moment ago."),
            "events_lost" => {
                format!("{server}: no curve, too many of the sampled events were lost.")
            }
            state => format!("{server}: no curve: {state}."),
        }
    }

    /// A row for each size, below bars of their miss ratios.
    fn build_table(&self) -> ReportTable {
        let points = &self.curve.points;
        let limit_bytes = self.bytes("memory_bytes");
        let rows = points.iter().map(|point| {
            let margin = (point.high - point.low) / 2.0;
            vec![
                format_bytes(point.memory_bytes),
                format_size(point.memory_bytes, limit_bytes),
                format_percent(Some(point.miss_ratio)),
                format!("\u{b1} {:.1}", 100.0 * margin),
                format_percent(self.lru_miss_ratio(point)),
            ]
        });
        let drawing = draw_bars(points, limit_bytes);
        let header = ["memory", "of -m", "misses", "interval", "LRU"];
        ReportTable { drawing, ..ReportTable::new("Misses by memory:", header, rows) }
    }

    fn list_notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.describe_resize().into_iter().collect();
        if self.state() != "ok" {
            return notes;
        }
        notes.push(format!(
            "The items of the last hour take {}; with unlimited memory {} of the gets would hit. From {} sampled items.",
            format_bytes(self.bytes("working_set_bytes")),
            format_percent(self.number("unlimited_hit_ratio")),
            format_count(self.bytes("sampled_items")),
        ));
        notes
    }

    /// What was expected of the last change of the limit, and what came.
    fn describe_resize(&self) -> Option<String> {
        let number = |name: &str| self.number(&format!("resize:{name}"));
        let percent = |name: &str| format_percent(number(name));
        let expected = format!(
            "When the limit was changed from {} to {}, {} misses were expected ({} to {})",
            format_bytes(number("from_bytes")? as u64),
            format_bytes(number("memory_bytes")? as u64),
            percent("miss_ratio"),
            percent("low"),
            percent("high"),
        );
        Some(match self.rows.get("resize:forecast").copied() {
            Some("held") => format!("{expected}; {} came.", percent("measured")),
            Some("broken") => format!(
                "{expected}; {} came: the load is another one than before, or the forecast was wrong.",
                percent("measured")
            ),
            _ => format!("{expected}; what came is not known yet."),
        })
    }

    /// The same in JSON; null without a change.
    fn resize_to_json(&self) -> Value {
        const FIELDS: [&str; 6] =
            ["from_bytes", "memory_bytes", "miss_ratio", "low", "high", "measured"];
        let Some(forecast) = self.rows.get("resize:forecast") else {
            return Value::Null;
        };
        let numbers = FIELDS.map(|name| (name, json!(self.number(&format!("resize:{name}")))));
        let fields = numbers.into_iter().chain([("forecast", json!(forecast))]);
        fields.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The result in JSON, in the form of `/api/curve`.
    fn to_document(&self, server: &str, advice: &[Advice]) -> Value {
        let numbers = NUMBERS.iter().map(|&name| {
            let value = self.rows.get(name).and_then(|value| serde_json::from_str(value).ok());
            (name.to_owned(), value.unwrap_or(Value::Null))
        });
        let mut document: Map<String, Value> = numbers.collect();
        document.insert("server".to_owned(), json!(server));
        document.insert("state".to_owned(), json!(self.state()));
        let points = self.curve.points.iter().map(|point| {
            let mut row = json!(point);
            row["lru_miss_ratio"] = json!(self.lru_miss_ratio(point));
            row
        });
        document.insert("rows".to_owned(), points.collect());
        let advice_rows: Vec<Value> = advice
            .iter()
            .map(|advice| {
                json!({ "memory_bytes": advice.memory_bytes, "avoided_per_second": advice.avoided_per_second,
                    "avoided_backend_s": advice.avoided_backend_s, "sentence": advice.sentence })
            })
            .collect();
        document.insert("advice".to_owned(), json!(advice_rows));
        document.insert("resize".to_owned(), self.resize_to_json());
        Value::Object(document)
    }
}

/// A size as a share of the present one.
fn format_size(memory_bytes: u64, limit_bytes: u64) -> String {
    format!("{:.0} %", 100.0 * memory_bytes as f64 / limit_bytes.max(1) as f64)
}

/// A bar of the miss ratio for each size; the present one is marked.
fn draw_bars(points: &[CurvePoint], limit_bytes: u64) -> String {
    let greatest = points.iter().map(|point| point.miss_ratio).fold(f64::MIN_POSITIVE, f64::max);
    let draw_bar = |point: &CurvePoint| {
        let length = (BAR_WIDTH * point.miss_ratio / greatest).round() as usize;
        let mark = if point.memory_bytes == limit_bytes { " <- now" } else { "" };
        let bar = "\u{2588}".repeat(length.max(1));
        format!(
            "{:>8}  {bar} {}{mark}\n",
            format_bytes(point.memory_bytes),
            format_percent(Some(point.miss_ratio))
        )
    };
    points.iter().map(draw_bar).collect()
}

/// What the advice costs or saves in a month, against the misses of a month; without a price, the misses that a GiB
/// avoids or costs, so that the reader can compare.
fn format_money(advice: &Advice, limit_bytes: u64, gib_month: Option<f64>) -> String {
    let added_gib = (advice.memory_bytes as f64 - limit_bytes as f64) / GIB;
    let millions = advice.avoided_per_second * MONTH_S / 1e6;
    if advice.memory_bytes == limit_bytes {
        return String::new();
    }
    let is_growth = added_gib > 0.0;
    match gib_month {
        _ if is_growth && millions <= 0.0 => "It brings nothing at any price.".to_owned(),
        Some(price) if is_growth => format!(
            "It costs {} a month: worth it if a million misses cost more than {}.",
            format_decimal(price * added_gib),
            format_decimal(price * added_gib / millions)
        ),
        Some(price) if millions < 0.0 => format!(
            "It saves {} a month: worth it if a million misses cost less than {}.",
            format_decimal(-price * added_gib),
            format_decimal(price * added_gib / millions)
        ),
        Some(price) => format!("It saves {} a month.", format_decimal(-price * added_gib)),
        None if is_growth => format!(
            "Break-even: a GiB-month may cost what {} million misses cost.",
            format_decimal(millions / added_gib)
        ),
        None if millions < 0.0 => format!(
            "Break-even: a GiB-month must cost more than {} million misses.",
            format_decimal(millions / added_gib)
        ),
        None => "It saves memory at any price.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::format_report;

    fn rows() -> Vec<(String, String)> {
        [
            ("state", "ok"),
            ("memory_bytes", "1073741824"),
            ("miss_ratio", "0.250000"),
            ("gets_per_second", "1000.000"),
            ("window_s", "600"),
            ("working_set_bytes", "2000000000"),
            ("unlimited_hit_ratio", "0.900000"),
            ("sampled_items", "12345"),
            ("0:memory_bytes", "1073741824"),
            ("0:miss_ratio", "0.25"),
            ("0:low", "0.24"),
            ("0:high", "0.26"),
            ("0:lru_miss_ratio", "0.3"),
            ("1:memory_bytes", "1342177280"),
            ("1:miss_ratio", "0.2"),
            ("1:low", "0.19"),
            ("1:high", "0.21"),
            ("1:lru_miss_ratio", "0.28"),
            ("advice:0:memory_bytes", "1342177280"),
            ("advice:0:avoided_per_second", "50.000"),
            ("advice:0:sentence", "+268 MB would avoid 50 of 250 misses/s."),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    #[test]
    fn the_curve_has_bars_a_table_advice_and_its_price() {
        let rows = rows();
        let live_curve = LiveCurve::of(&rows);
        let report = live_curve.build_report("cache1:11211", Some(4.2));
        let text = format_report(&report, Detail::default());
        let text = text.replace("if a\nmillion", "if a million");
        for expected in [
            "cache1:11211: 25.0 % of the gets miss at 1.1 GB.",
            "25.0 % <- now",
            "1.3 GB  125 %  20.0 %",
            "It costs 1.05 a month: worth it if a million misses cost more than",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let document = live_curve.build_report("cache1:11211", None).result;
        assert_eq!((&document["state"], &document["rows"][1]["low"]), (&json!("ok"), &json!(0.19)));
        assert_eq!(
            (&document["sampled_items"], &document["working_set_bytes"]),
            (&json!(12345), &json!(2_000_000_000))
        );
    }

    #[test]
    fn a_change_of_the_limit_is_compared_with_its_forecast() {
        let mut with_resize = rows();
        let resize = [
            ("resize:from_bytes", "536870912"),
            ("resize:memory_bytes", "1073741824"),
            ("resize:miss_ratio", "0.26"),
            ("resize:low", "0.25"),
            ("resize:high", "0.27"),
            ("resize:forecast", "waiting"),
        ];
        with_resize.extend(resize.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let curve = LiveCurve::of(&with_resize);
        let note = curve.describe_resize().unwrap();
        assert!(note.ends_with("(25.0 % to 27.0 %); what came is not known yet."), "{note}");
        assert_eq!(curve.resize_to_json()["measured"], Value::Null);
        assert_eq!(curve.lru_miss_ratio(&curve.curve.points[0]), Some(0.3));
        with_resize.pop();
        let measured = [("resize:measured", "0.300000"), ("resize:forecast", "broken")];
        with_resize.extend(measured.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let curve = LiveCurve::of(&with_resize);
        assert!(curve.describe_resize().unwrap().contains("30.0 % came: the load"));
        assert_eq!(curve.resize_to_json()["forecast"], "broken");
        assert_eq!(LiveCurve::of(&rows()).resize_to_json(), Value::Null);
    }

    #[test]
    fn the_break_even_price_is_named_without_a_price() {
        let advice = |memory_bytes, avoided_per_second| Advice {
            memory_bytes,
            avoided_per_second,
            avoided_backend_s: None,
            sentence: String::new(),
        };
        let limit = 1 << 30;
        let growth = format_money(&advice(2 << 30, 100.0), limit, None);
        assert_eq!(growth, "Break-even: a GiB-month may cost what 263 million misses cost.");
        let shrink = format_money(&advice(1 << 29, -1.0), limit, None);
        assert_eq!(shrink, "Break-even: a GiB-month must cost more than 5.26 million misses.");
        let saved = format_money(&advice(1 << 29, -1.0), limit, Some(4.0));
        assert_eq!(
            saved,
            "It saves 2.00 a month: worth it if a million misses cost less than 0.760."
        );
        assert_eq!(
            format_money(&advice(2 << 30, 0.0), limit, Some(4.0)),
            "It brings nothing at any price."
        );
    }
}
