//! The page of a report: for each result its origin, its sentence, its figures as tables, and charts.

use glasscache_lab::text::{format_count, format_decimal};
use glasscache_sim::page::{Chart, Page, Series, Table};
use serde_json::{Map, Value};

use super::result::ResultFile;

/// Rows of a table; more are in the file.
const ROWS_MAX: usize = 60;

/// Columns of a table; more are in the file.
const COLUMNS_MAX: usize = 14;

/// Keys that are shown elsewhere, or are series too long for a table.
const EXCLUDED_KEYS: [&str; 8] =
    ["run", "sentence", "series", "reported", "points", "wire", "answer", "arguments"];

/// Builds the page.
pub(super) fn build_page(folder: &str, results: &[ResultFile], left_out: &[String]) -> Page {
    let mut machines: Vec<String> = results.iter().map(ResultFile::machine).collect();
    machines.retain(|machine| !machine.is_empty());
    machines.sort_unstable();
    machines.dedup();
    let measured_on = if machines.is_empty() {
        String::new()
    } else {
        format!(", measured on {}", machines.join("; and on "))
    };
    let plural_suffix = if results.len() == 1 { "" } else { "s" };
    let mut notes = Vec::new();
    if !left_out.is_empty() {
        notes.push(format!("Left out, because they are not results: {}.", left_out.join(", ")));
    }
    Page {
        title: format!("Report of {folder}"),
        sentence: format!("{} result{plural_suffix}{measured_on}.", results.len()),
        charts: results.iter().flat_map(build_charts).collect(),
        tables: results.iter().flat_map(build_tables).collect(),
        notes,
        ..Page::default()
    }
}

/// The origin of a result, and its figures.
fn build_tables(result: &ResultFile) -> Vec<Table> {
    let origin = [
        ("result", result.find_sentence()),
        ("to repeat it", result.command_line()),
        ("date", result.date()),
        ("version", result.version.clone()),
        ("machine", result.machine()),
    ];
    let rows = origin.into_iter().filter(|(_, text)| !text.is_empty());
    let origin_table = Table {
        title: format!("{}: {}", result.name, result.command),
        header: vec![String::new(), String::new()],
        rows: rows.map(|(name, text)| vec![name.to_owned(), text]).collect(),
    };
    let mut tables = vec![origin_table];
    let Some(object) = result.result_json.as_object() else {
        tables.extend(build_list_table(&result.name, &result.result_json));
        return tables;
    };
    tables.extend(build_figures_table(&result.name, object));
    for (key, value) in object.iter().filter(|(key, _)| !EXCLUDED_KEYS.contains(&key.as_str())) {
        let title = format!("{}: {}", result.name, key.replace('_', " "));
        tables.extend(match value {
            Value::Array(_) => build_list_table(&title, value),
            Value::Object(map) if map.values().all(Value::is_object) && !map.is_empty() => {
                build_map_table(&title, map)
            }
            _ => None,
        });
    }
    tables
}

/// The scalars of a result, those of its inner objects included.
fn build_figures_table(result_name: &str, object: &Map<String, Value>) -> Option<Table> {
    let mut cells = Vec::new();
    for (key, value) in object.iter().filter(|(key, _)| !EXCLUDED_KEYS.contains(&key.as_str())) {
        let is_map = |value: &Value| {
            let map = value.as_object();
            map.is_some_and(|map| !map.is_empty() && map.values().all(Value::is_object))
        };
        if !is_map(value) {
            flatten_json(key, value, &mut cells);
        }
    }
    let rows: Vec<Vec<String>> = cells
        .into_iter()
        .take(ROWS_MAX)
        .map(|(key, text)| vec![key.replace('_', " "), text])
        .collect();
    (!rows.is_empty()).then(|| Table {
        title: format!("{result_name}: figures"),
        header: vec!["figure".to_owned(), "value".to_owned()],
        rows,
    })
}

/// A list of objects, one row each.
fn build_list_table(title: &str, list: &Value) -> Option<Table> {
    let rows: Vec<Vec<(String, String)>> =
        list.as_array()?.iter().filter(|row| row.is_object()).map(list_named_cells).collect();
    build_table(title, &rows)
}

/// An object of objects, one row each with its key first.
fn build_map_table(title: &str, map: &Map<String, Value>) -> Option<Table> {
    let to_row = |(key, value): (&String, &Value)| {
        let mut row = vec![(String::new(), key.clone())];
        row.extend(list_named_cells(value));
        row
    };
    build_table(title, &map.iter().map(to_row).collect::<Vec<_>>())
}

fn build_table(title: &str, rows: &[Vec<(String, String)>]) -> Option<Table> {
    let mut header: Vec<String> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !header.contains(name) && header.len() < COLUMNS_MAX {
            header.push(name.clone());
        }
    }
    let to_page_row = |row: &Vec<(String, String)>| {
        let find_text = |name: &String| {
            let cell = row.iter().find(|(cell_name, _)| cell_name == name);
            cell.map_or_else(String::new, |(_, text)| text.clone())
        };
        header.iter().map(find_text).collect()
    };
    let page_rows: Vec<Vec<String>> = rows.iter().take(ROWS_MAX).map(to_page_row).collect();
    (!page_rows.is_empty() && !header.is_empty()).then(|| Table {
        title: match rows.len().saturating_sub(ROWS_MAX) {
            0 => title.to_owned(),
            hidden_rows => format!("{title} ({hidden_rows} more in the file)"),
        },
        header: header.iter().map(|name| name.replace('_', " ")).collect(),
        rows: page_rows,
    })
}

fn list_named_cells(value: &Value) -> Vec<(String, String)> {
    let mut cells = Vec::new();
    for (key, inner_value) in value.as_object().into_iter().flatten() {
        flatten_json(key, inner_value, &mut cells);
    }
    cells
}

/// The scalars of a value with their names; a figure with an interval is one number.
fn flatten_json(key: &str, value: &Value, cells: &mut Vec<(String, String)>) {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::Bool(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_u64() {
            Some(whole) => format_count(whole),
            None => format_decimal(number.as_f64().unwrap_or(0.0)),
        },
        Value::Array(list)
            if list.iter().all(|element| element.is_number() || element.is_string()) =>
        {
            let texts = list.iter().map(|element| match element {
                Value::String(text) => text.clone(),
                number => format_decimal(number.as_f64().unwrap_or(0.0)),
            });
            texts.collect::<Vec<_>>().join(", ")
        }
        Value::Array(_) => return,
        Value::Object(map) => {
            let at_least = map.get("at_least").and_then(Value::as_f64);
            let figure = map.get("us").or(map.get("value")).and_then(Value::as_f64);
            match (figure, at_least) {
                (Some(figure), _) => format_decimal(figure),
                (None, Some(bound)) => format!(">= {}", format_decimal(bound)),
                (None, None) => {
                    for (inner_key, inner_value) in map {
                        let name = if key == "percentiles" {
                            format!("p{inner_key}")
                        } else {
                            format!("{key} {inner_key}")
                        };
                        flatten_json(&name, inner_value, cells);
                    }
                    return;
                }
            }
        }
    };
    cells.push((key.to_owned(), text));
}

/// Charts of the results that have a form of their own: curves of misses, and profiles.
fn build_charts(result: &ResultFile) -> Vec<Chart> {
    [build_curve_chart(result), build_profile_chart(result)].into_iter().flatten().collect()
}

fn build_curve_chart(result: &ResultFile) -> Option<Chart> {
    let points = result.result_json["lru"]["points"].as_array()?;
    let to_point = |point: &Value| Some((point["size"].as_f64()?, point["miss_ratio"].as_f64()?));
    Some(Chart {
        title: format!("{}: miss ratio by size", result.name),
        x_label: "size of the cache (logarithmic)".to_owned(),
        is_x_log: true,
        y_label: "miss ratio (misses / requests)".to_owned(),
        series: vec![Series {
            label: "LRU".to_owned(),
            points: points.iter().filter_map(to_point).collect(),
            ..Series::default()
        }],
        ..Chart::default()
    })
}

fn build_profile_chart(result: &ResultFile) -> Option<Chart> {
    let rows = result.result_json["by_size"].as_array()?;
    let new_series = |percent: &str| {
        let to_point = |row: &Value| {
            let us = row["percentiles"][percent]["us"].as_f64()?;
            Some((row["bytes"].as_f64()?.max(1.0), us))
        };
        Series {
            label: format!("p{percent}"),
            points: rows.iter().filter_map(to_point).collect(),
            ..Series::default()
        }
    };
    let series: Vec<Series> = ["50", "90", "99"]
        .into_iter()
        .map(new_series)
        .filter(|series| !series.points.is_empty())
        .collect();
    (!series.is_empty()).then(|| Chart {
        title: format!("{}: time of a get by size of the value", result.name),
        x_label: "bytes of the value (logarithmic)".to_owned(),
        is_x_log: true,
        y_label: "microseconds (logarithmic)".to_owned(),
        is_y_log: true,
        series,
        ..Chart::default()
    })
}
