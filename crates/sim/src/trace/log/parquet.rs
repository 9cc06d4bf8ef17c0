//! Request logs as Parquet: `items.parquet` and `requests.parquet`.

use super::super::BATCH_ROWS;
use super::super::cells::Cells;
use super::super::table::{Pieces, Place, Table};
use super::jsonl::log_route;
use super::{Items, NONE, RequestLog, Requests};
use crate::TraceError;
use parquet::file::reader::ChunkReader;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Reads both files.
pub(super) fn read<S: ChunkReader + 'static>(
    items: (&str, S),
    requests: (&str, S),
) -> Result<RequestLog, TraceError> {
    let items = read_items(&Table::open(items.0, items.1)?)?;
    let requests = read_requests(&Table::open(requests.0, requests.1)?, items.len())?;
    Ok(RequestLog {
        items,
        requests,
        cut: None,
    })
}

/// Walks the table in pieces; `read` gets the open columns of the piece's row group.
fn each_piece<S: ChunkReader + 'static>(
    table: &Table<S>,
    places: &[Option<Place>],
    mut read: impl FnMut(&mut [Option<Cells>], Range<u64>) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut pieces = Pieces::of(table);
    let mut cells: Vec<Option<Cells>> = Vec::new();
    while let Some((group, rows, is_first)) = pieces.next(BATCH_ROWS) {
        if is_first {
            let open = |place: &Option<Place>| {
                place
                    .map(|place| table.cells(group, rows.start, place))
                    .transpose()
            };
            cells = places.iter().map(open).collect::<Result<_, _>>()?;
        }
        read(&mut cells, rows)?;
    }
    Ok(())
}

/// Reads a column of numbers, nulls where the file has no such column.
fn numbers(
    cells: &mut Option<Cells>,
    rows: &Range<u64>,
    max: u64,
) -> Result<Vec<Option<u64>>, TraceError> {
    let count = (rows.end - rows.start) as usize;
    let mut values = Vec::new();
    match cells {
        Some(cells) => cells.numbers(count, max, &mut values)?,
        None => values.resize(count, None),
    }
    Ok(values)
}

/// Reads a column of strings, nulls where the file has no such column.
fn words(cells: &mut Option<Cells>, rows: &Range<u64>) -> Result<Vec<Option<String>>, TraceError> {
    let count = (rows.end - rows.start) as usize;
    let mut values = Vec::with_capacity(count);
    match cells {
        Some(cells) => cells.words(count, |word| {
            values.push(word.map(|word| String::from_utf8_lossy(word).into_owned()));
        })?,
        None => values.resize(count, None),
    }
    Ok(values)
}

/// The values of a column in which null is a fault.
fn required<T>(
    file: &str,
    column: &'static str,
    first_row: u64,
    values: Vec<Option<T>>,
) -> Result<Vec<T>, TraceError> {
    let fault = |at: usize| {
        TraceError::row(file, first_row + at as u64 + 1, "may not be null").in_column(column)
    };
    let whole = |(at, value): (usize, Option<T>)| value.ok_or_else(|| fault(at));
    values.into_iter().enumerate().map(whole).collect()
}

fn read_items<S: ChunkReader + 'static>(table: &Table<S>) -> Result<Items, TraceError> {
    let file = table.file.as_str();
    let places = [
        table.find_numbers("item")?,
        Some(table.require("key", table.find_words("key")?)?),
        table.find_numbers("parent")?,
        table.find_numbers("size")?,
    ];
    let mut items = Items::default();
    let max = u64::from(NONE - 1);
    each_piece(table, &places, |cells, rows| {
        for (at, item) in numbers(&mut cells[0], &rows, max)?.into_iter().enumerate() {
            let row = rows.start + at as u64;
            if item.is_some_and(|item| item != row) {
                let fault = format!("expected the row number {row}, found {}", item.unwrap_or(0));
                return Err(TraceError::row(file, row + 1, fault).in_column("item"));
            }
        }
        items.keys.extend(required(
            file,
            "key",
            rows.start,
            words(&mut cells[1], &rows)?,
        )?);
        let or = |other| move |value: Option<u64>| value.map_or(other, |value| value as u32);
        items.parents.extend(
            numbers(&mut cells[2], &rows, max)?
                .into_iter()
                .map(or(NONE)),
        );
        let sizes = numbers(&mut cells[3], &rows, u32::MAX.into())?;
        items.sizes.extend(sizes.into_iter().map(or(0)));
        Ok(())
    })?;
    check_keys(file, &items.keys)?;
    Ok(items)
}

/// Refuses a key that stands twice.
fn check_keys(file: &str, keys: &[String]) -> Result<(), TraceError> {
    let mut seen = HashSet::with_capacity(keys.len());
    match keys.iter().position(|key| !seen.insert(key)) {
        None => Ok(()),
        Some(at) => {
            let fault = format!("the key \"{}\" stands here a second time", keys[at]);
            Err(TraceError::row(file, at as u64 + 1, fault).in_column("key"))
        }
    }
}

fn read_requests<S: ChunkReader + 'static>(
    table: &Table<S>,
    items: usize,
) -> Result<Requests, TraceError> {
    let file = table.file.as_str();
    let require = |name: &'static str| table.require(name, table.find_numbers(name)?).map(Some);
    let places = [
        table.find_numbers("request")?,
        require("time_us")?,
        table.find_numbers("instance")?,
        require("base_us")?,
        table.find_numbers("page")?,
        table.find_words("route")?,
        Some(table.require("items", table.find_lists("items")?)?),
    ];
    let mut log = Requests {
        starts: vec![0],
        ..Requests::default()
    };
    let mut routes = HashMap::new();
    let max_item = (items as u64).saturating_sub(1);
    each_piece(table, &places, |cells, rows| {
        let request = numbers(&mut cells[0], &rows, u64::MAX)?;
        log.request.extend(
            request
                .iter()
                .zip(rows.clone())
                .map(|(id, row)| id.unwrap_or(row)),
        );
        let time = numbers(&mut cells[1], &rows, u64::MAX)?;
        log.time_us
            .extend(required(file, "time_us", rows.start, time)?);
        let instance = numbers(&mut cells[2], &rows, u16::MAX.into())?;
        log.instance
            .extend(instance.iter().map(|instance| instance.unwrap_or(0) as u16));
        let base = required(
            file,
            "base_us",
            rows.start,
            numbers(&mut cells[3], &rows, u32::MAX.into())?,
        )?;
        log.base_us.extend(base.iter().map(|&base| base as u32));
        let page = numbers(&mut cells[4], &rows, max_item)?;
        log.page.extend(
            page.iter()
                .map(|page| page.map_or(NONE, |page| page as u32)),
        );
        for route in words(&mut cells[5], &rows)? {
            let route = route.map_or(NONE, |name| log_route(&name, &mut log.routes, &mut routes));
            log.route.push(route);
        }
        let Some(lists) = &mut cells[6] else {
            return Ok(());
        };
        lists.lists(
            (rows.end - rows.start) as usize,
            max_item,
            &mut log.items,
            &mut log.starts,
        )
    })?;
    Ok(log)
}
