//! Request logs as Parquet: `items.parquet` and `requests.parquet`.

use super::super::BATCH_ROWS;
use super::super::column::ColumnDecoder;
use super::super::parquet_file::{ColumnRef, ParquetFile, RowRanges};
use super::jsonl::intern_route;
use super::{CallTimes, Items, NONE, RequestLog, Requests};
use crate::TraceError;
use parquet::file::reader::ChunkReader;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Reads both files.
pub(super) fn read<S: ChunkReader + 'static>(
    (items_file, items_source): (&str, S),
    (requests_file, requests_source): (&str, S),
) -> Result<RequestLog, TraceError> {
    let items = read_items(&ParquetFile::open(items_file, items_source)?)?;
    let requests = read_requests(&ParquetFile::open(requests_file, requests_source)?, items.len())?;
    Ok(RequestLog { items, requests, truncated_after: None })
}

/// Reads the file range by range; `read` receives the column decoders of the row group.
fn for_each_range<S: ChunkReader + 'static>(
    parquet_file: &ParquetFile<S>,
    column_refs: &[Option<ColumnRef>],
    mut read: impl FnMut(&mut [Option<ColumnDecoder>], Range<u64>) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut row_ranges = RowRanges::of(parquet_file);
    let mut decoders: Vec<Option<ColumnDecoder>> = Vec::new();
    while let Some((group, rows, is_first)) = row_ranges.next(BATCH_ROWS) {
        if is_first {
            let open = |column_ref: &Option<ColumnRef>| {
                column_ref
                    .map(|column_ref| parquet_file.open_column(group, rows.start, column_ref))
                    .transpose()
            };
            decoders = column_refs.iter().map(open).collect::<Result<_, _>>()?;
        }
        read(&mut decoders, rows)?;
    }
    Ok(())
}

/// Reads a column of numbers, nulls where the file has no such column.
fn read_numbers(
    decoder: &mut Option<ColumnDecoder>,
    rows: &Range<u64>,
    max: u64,
) -> Result<Vec<Option<u64>>, TraceError> {
    let row_count = (rows.end - rows.start) as usize;
    let mut values = Vec::new();
    match decoder {
        Some(decoder) => decoder.read_numbers(row_count, max, &mut values)?,
        None => values.resize(row_count, None),
    }
    Ok(values)
}

/// Reads a column of strings, nulls where the file has no such column.
fn read_strings(
    decoder: &mut Option<ColumnDecoder>,
    rows: &Range<u64>,
) -> Result<Vec<Option<String>>, TraceError> {
    let row_count = (rows.end - rows.start) as usize;
    let mut values = Vec::with_capacity(row_count);
    match decoder {
        Some(decoder) => decoder.read_strings(row_count, |text| {
            values.push(text.map(|text| String::from_utf8_lossy(text).into_owned()));
        })?,
        None => values.resize(row_count, None),
    }
    Ok(values)
}

/// The values of a column that must not contain nulls.
fn require_non_null<T>(
    file: &str,
    column: &'static str,
    first_row: u64,
    values: Vec<Option<T>>,
) -> Result<Vec<T>, TraceError> {
    let null_error = |offset: usize| {
        let row_number = first_row + offset as u64 + 1;
        TraceError::row(file, row_number, "may not be null").in_column(column)
    };
    let require = |(offset, value): (usize, Option<T>)| value.ok_or_else(|| null_error(offset));
    values.into_iter().enumerate().map(require).collect()
}

fn read_items<S: ChunkReader + 'static>(
    parquet_file: &ParquetFile<S>,
) -> Result<Items, TraceError> {
    let file = parquet_file.file.as_str();
    let column_refs = [
        parquet_file.find_number_column("item")?,
        Some(parquet_file.require("key", parquet_file.find_string_column("key")?)?),
        parquet_file.find_number_column("parent")?,
        parquet_file.find_number_column("size")?,
        parquet_file.find_number_column("ttl_s")?,
    ];
    let mut items = Items::default();
    let item_max = u64::from(NONE - 1);
    for_each_range(parquet_file, &column_refs, |decoders, rows| {
        for (offset, item) in
            read_numbers(&mut decoders[0], &rows, item_max)?.into_iter().enumerate()
        {
            let row = rows.start + offset as u64;
            if item.is_some_and(|item| item != row) {
                let fault = format!("expected the row number {row}, found {}", item.unwrap_or(0));
                return Err(TraceError::row(file, row + 1, fault).in_column("item"));
            }
        }
        items.keys.extend(require_non_null(
            file,
            "key",
            rows.start,
            read_strings(&mut decoders[1], &rows)?,
        )?);
        let number_or = |missing_number| {
            move |value: Option<u64>| value.map_or(missing_number, |value| value as u32)
        };
        items.parents.extend(
            read_numbers(&mut decoders[2], &rows, item_max)?.into_iter().map(number_or(NONE)),
        );
        let sizes = read_numbers(&mut decoders[3], &rows, u32::MAX.into())?;
        items.sizes.extend(sizes.into_iter().map(number_or(0)));
        let ttls_s = read_numbers(&mut decoders[4], &rows, u32::MAX.into())?;
        for (ttl_s, item) in ttls_s.into_iter().map(number_or(0)).zip(rows.start as u32..) {
            items.set_ttl_s(item, ttl_s);
        }
        Ok(())
    })?;
    check_keys(file, &items.keys)?;
    Ok(items)
}

/// Refuses duplicate keys.
fn check_keys(file: &str, keys: &[String]) -> Result<(), TraceError> {
    let mut keys_seen = HashSet::with_capacity(keys.len());
    match keys.iter().position(|key| !keys_seen.insert(key)) {
        None => Ok(()),
        Some(row) => {
            let fault = format!("the key \"{}\" is a duplicate", keys[row]);
            Err(TraceError::row(file, row as u64 + 1, fault).in_column("key"))
        }
    }
}

/// Reads what the calls took, from the columns after the items.
fn read_calls(
    decoders: &mut [Option<ColumnDecoder>],
    rows: &Range<u64>,
    requests: &mut Requests,
) -> Result<(), TraceError> {
    let row_count = (rows.end - rows.start) as usize;
    let (mut keys, mut starts) = (Vec::new(), vec![0]);
    match &mut decoders[7] {
        Some(lists) => lists.read_lists(row_count, u32::MAX.into(), &mut keys, &mut starts)?,
        None => starts.resize(row_count + 1, 0),
    }
    let mut read_column =
        |column: usize| read_numbers(&mut decoders[column], rows, u64::from(NONE - 1));
    let [waits_us, decodes_us, writes] = [read_column(8)?, read_column(9)?, read_column(10)?];
    let first_row = requests.starts.len() - 1 - row_count;
    for offset in 0..row_count {
        let Some(wait_us) = waits_us[offset] else { continue };
        let number = |column: &[Option<u64>]| column[offset].unwrap_or(0) as u32;
        let times = CallTimes {
            wait_us: wait_us as u32,
            decode_us: number(&decodes_us),
            writes: number(&writes),
        };
        let calls = (&keys[starts[offset]..starts[offset + 1]], times);
        requests.calls.push(first_row + offset, Some(calls));
    }
    Ok(())
}

fn read_requests<S: ChunkReader + 'static>(
    parquet_file: &ParquetFile<S>,
    item_count: usize,
) -> Result<Requests, TraceError> {
    let file = parquet_file.file.as_str();
    let require = |name: &'static str| {
        parquet_file.require(name, parquet_file.find_number_column(name)?).map(Some)
    };
    let column_refs = [
        parquet_file.find_number_column("request")?,
        require("time_us")?,
        parquet_file.find_number_column("instance")?,
        require("base_us")?,
        parquet_file.find_number_column("page")?,
        parquet_file.find_string_column("route")?,
        Some(parquet_file.require("items", parquet_file.find_list_column("items")?)?),
        parquet_file.find_list_column("calls")?,
        parquet_file.find_number_column("wait_us")?,
        parquet_file.find_number_column("decode_us")?,
        parquet_file.find_number_column("writes")?,
    ];
    let mut requests = Requests { starts: vec![0], ..Requests::default() };
    let mut number_by_route = HashMap::new();
    let item_max = (item_count as u64).saturating_sub(1);
    for_each_range(parquet_file, &column_refs, |decoders, rows| {
        let request_numbers = read_numbers(&mut decoders[0], &rows, u64::MAX)?;
        requests.numbers.extend(
            request_numbers.iter().zip(rows.clone()).map(|(number, row)| number.unwrap_or(row)),
        );
        let times_us = read_numbers(&mut decoders[1], &rows, u64::MAX)?;
        requests.times_us.extend(require_non_null(file, "time_us", rows.start, times_us)?);
        let instances = read_numbers(&mut decoders[2], &rows, u16::MAX.into())?;
        requests.instances.extend(instances.iter().map(|instance| instance.unwrap_or(0) as u16));
        let base_times_us = require_non_null(
            file,
            "base_us",
            rows.start,
            read_numbers(&mut decoders[3], &rows, u32::MAX.into())?,
        )?;
        requests.base_times_us.extend(base_times_us.iter().map(|&base_us| base_us as u32));
        let pages = read_numbers(&mut decoders[4], &rows, item_max)?;
        requests.pages.extend(pages.iter().map(|page| page.map_or(NONE, |page| page as u32)));
        for route_name in read_strings(&mut decoders[5], &rows)? {
            let route = route_name.map_or(NONE, |name| {
                intern_route(&name, &mut requests.route_names, &mut number_by_route)
            });
            requests.routes.push(route);
        }
        let Some(lists) = &mut decoders[6] else {
            return Ok(());
        };
        lists.read_lists(
            (rows.end - rows.start) as usize,
            item_max,
            &mut requests.items,
            &mut requests.starts,
        )?;
        read_calls(decoders, &rows, &mut requests)
    })?;
    Ok(requests)
}
