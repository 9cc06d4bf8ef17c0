//! Request logs written as Parquet.

use super::super::parquet_writer::{Column, ColumnForm, GROUP_ROWS, ParquetWriter};
use super::{CallTimes, NONE, RequestLog, Requests};
use parquet::data_type::ByteArray;
use std::io::{Result, Write};
use std::ops::Range;

const ITEMS_SCHEMA: &str = "message items {
    required int32 item (INTEGER(32, false));
    required binary key (STRING);
    optional int32 parent (INTEGER(32, false));
    optional int32 size (INTEGER(32, false));
    optional int32 ttl_s (INTEGER(32, false));
}";

const REQUESTS_SCHEMA: &str = "message requests {
    required int64 request (INTEGER(64, false));
    required int64 time_us (INTEGER(64, false));
    required int32 instance (INTEGER(16, false));
    required int32 base_us (INTEGER(32, false));
    optional int32 page (INTEGER(32, false));
    optional binary route (STRING);
    required group items (LIST) { repeated group list { required int32 element (INTEGER(32, false)); } }
    required group calls (LIST) { repeated group list { required int32 element (INTEGER(32, false)); } }
    optional int32 wait_us (INTEGER(32, false));
    optional int32 decode_us (INTEGER(32, false));
    optional int32 writes (INTEGER(32, false));
}";

const ITEMS_FORMS: &[(&str, ColumnForm)] = &[("key", ColumnForm::DistinctTexts)];

const REQUESTS_FORMS: &[(&str, ColumnForm)] =
    &[("route", ColumnForm::RepeatedTexts), ("items.list.element", ColumnForm::RepeatedSequences)];

pub(super) fn write(
    log: &RequestLog,
    items_output: impl Write + Send,
    requests_output: impl Write + Send,
) -> Result<()> {
    let mut parquet_writer = ParquetWriter::with_deltas(items_output, ITEMS_SCHEMA, ITEMS_FORMS)?;
    for rows in row_groups(log.items.len()) {
        parquet_writer.write_group(&item_columns(log, rows))?;
    }
    parquet_writer.finish()?;
    let mut parquet_writer =
        ParquetWriter::with_deltas(requests_output, REQUESTS_SCHEMA, REQUESTS_FORMS)?;
    for rows in row_groups(log.requests.len()) {
        parquet_writer.write_group(&request_columns(log, rows))?;
    }
    parquet_writer.finish()?;
    Ok(())
}

/// The rows of each row group.
fn row_groups(row_count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..row_count).step_by(GROUP_ROWS).map(move |start| start..row_count.min(start + GROUP_ROWS))
}

fn item_columns(log: &RequestLog, rows: Range<usize>) -> [Column; 5] {
    let items = &log.items;
    let to_byte_array = |key: &String| ByteArray::from(key.as_str());
    let required_ints = |values: Vec<i32>| Column::Ints { values, definition_levels: None };
    [
        required_ints(rows.clone().map(|row| row as i32).collect()),
        Column::Strings {
            values: items.keys[rows.clone()].iter().map(to_byte_array).collect(),
            definition_levels: None,
        },
        Column::nullable_numbers(
            items.parents[rows.clone()].iter().map(|&parent| optional_number(parent)),
        ),
        Column::nullable_numbers(items.sizes[rows.clone()].iter().map(|&size| known_number(size))),
        Column::nullable_numbers(rows.map(|row| known_number(items.ttl_s(row as u32)))),
    ]
}

fn request_columns(log: &RequestLog, rows: Range<usize>) -> [Column; 11] {
    let requests = &log.requests;
    let longs = |values: &[u64]| Column::Longs(values.iter().map(|&value| value as i64).collect());
    let required_ints = |values: Vec<i32>| Column::Ints { values, definition_levels: None };
    // One copy of each name, which the rows share.
    let to_byte_array = |name: &String| ByteArray::from(name.as_str());
    let route_names: Vec<ByteArray> = requests.route_names.iter().map(to_byte_array).collect();
    let route_name = |&route: &u32| route_names.get(route as usize).cloned();
    [
        longs(&requests.numbers[rows.clone()]),
        longs(&requests.times_us[rows.clone()]),
        required_ints(requests.instances[rows.clone()].iter().map(|&value| value.into()).collect()),
        required_ints(
            requests.base_times_us[rows.clone()].iter().map(|&value| value as i32).collect(),
        ),
        Column::nullable_numbers(
            requests.pages[rows.clone()].iter().map(|&page| optional_number(page)),
        ),
        Column::nullable_strings(requests.routes[rows.clone()].iter().map(route_name)),
        Column::lists(rows.clone().map(|row| requests.items_of(row))),
        Column::lists(
            rows.clone().map(|row| requests.calls.of(row).map_or(&[][..], |(keys, _)| keys)),
        ),
        times_column(requests, rows.clone(), |times| times.wait_us),
        times_column(requests, rows.clone(), |times| times.decode_us),
        times_column(requests, rows, |times| times.writes),
    ]
}

/// Nulls where calls are unknown.
fn times_column(requests: &Requests, rows: Range<usize>, number: fn(CallTimes) -> u32) -> Column {
    Column::nullable_numbers(rows.map(|row| requests.calls.of(row).map(|(_, times)| number(times))))
}

/// A number that is 0 where it is unknown.
fn known_number(number: u32) -> Option<u32> {
    (number != 0).then_some(number)
}

fn optional_number(number: u32) -> Option<u32> {
    (number != NONE).then_some(number)
}
