//! Request logs as JSON lines: `items.jsonl` and `requests.jsonl`, items named by their keys.
//!
//! A key that a request uses and no line lists is an item without parent, of unknown size, numbered after the listed
//! ones in the order of first use.

use super::super::jsonl::JsonRow;
use super::super::lines::Lines;
use super::{CallTimes, Items, NONE, RequestLog, Requests};
use crate::TraceError;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, Write};

/// The number of each key or route.
type NumberByName = HashMap<String, u32>;

/// Reads both files; of a truncated file the complete rows are kept.
pub(super) fn read(
    (items_file, items_source): (&str, impl BufRead),
    (requests_file, requests_source): (&str, impl BufRead),
) -> Result<RequestLog, TraceError> {
    let (mut items, mut number_by_key) = read_items(items_file, items_source)?;
    let mut requests = Requests { starts: vec![0], ..Requests::default() };
    let mut lines = Lines::new(requests_file, requests_source);
    let mut number_by_route = NumberByName::new();
    while !lines.is_truncated() && lines.next()?.is_some() {
        let (line, row_number) = lines.last_line();
        let append_result = JsonRow::parse(lines.file(), line, row_number).and_then(|row| {
            append_request(
                &row,
                &mut items,
                &mut number_by_key,
                &mut requests,
                &mut number_by_route,
            )
        });
        if let Err(error) = append_result {
            lines.tolerate_truncated_tail(error)?;
        }
    }
    let truncated_after = lines.is_truncated().then_some(requests.len() as u64);
    Ok(RequestLog { items, requests, truncated_after })
}

fn read_items(file: &str, source: impl BufRead) -> Result<(Items, NumberByName), TraceError> {
    let mut lines = Lines::new(file, source);
    let (mut items, mut number_by_key) = (Items::default(), NumberByName::new());
    let mut parent_keys: Vec<Option<String>> = Vec::new();
    while lines.next()?.is_some() {
        let (line, row_number) = lines.last_line();
        let parent_key = JsonRow::parse(file, line, row_number)
            .and_then(|row| append_item(&row, (file, row_number), &mut items, &mut number_by_key));
        parent_keys.push(parent_key.map_err(|error| lines.mark_if_truncated(error))?);
    }
    for (index, parent_key) in parent_keys.into_iter().enumerate() {
        let parent_number = match parent_key {
            None => NONE,
            Some(key) => *number_by_key.get(&key).ok_or_else(|| {
                let fault = format!("the parent \"{key}\" is not in the file");
                TraceError::row(file, index as u64 + 1, fault).in_column("parent")
            })?,
        };
        items.parents.push(parent_number);
    }
    Ok((items, number_by_key))
}

/// Appends one item and returns the key of its parent.
fn append_item(
    row: &JsonRow<'_>,
    (file, row_number): (&str, u64),
    items: &mut Items,
    number_by_key: &mut NumberByName,
) -> Result<Option<String>, TraceError> {
    let key = row.require_value("key", row.text("key")?)?;
    let number = items.keys.len() as u32;
    if number_by_key.insert(key.to_owned(), number).is_some() {
        let fault = format!("the key \"{key}\" is a duplicate");
        return Err(TraceError::row(file, row_number, fault).in_column("key"));
    }
    items.keys.push(key.to_owned());
    let size = row.number("size", u32::MAX.into())?;
    items.sizes.push(size.unwrap_or(0) as u32);
    if let Some(ttl_s) = row.number("ttl_s", u32::MAX.into())? {
        items.set_ttl_s(number, ttl_s as u32);
    }
    Ok(row.text("parent")?.map(str::to_owned))
}

/// Appends one request, all of its columns or none.
fn append_request(
    row: &JsonRow<'_>,
    items: &mut Items,
    number_by_key: &mut NumberByName,
    requests: &mut Requests,
    number_by_route: &mut NumberByName,
) -> Result<(), TraceError> {
    let request_number = row.number("request", u64::MAX)?.unwrap_or(requests.len() as u64);
    let time_us = row.require_value("time_us", row.number("time_us", u64::MAX)?)?;
    let instance = row.number("instance", u16::MAX.into())?.unwrap_or(0) as u16;
    let base_us = row.require_value("base_us", row.number("base_us", u32::MAX.into())?)? as u32;
    let page_key = row.text("page")?;
    let route_name = row.text("route")?;
    let keys = request_keys(row)?;
    let calls = request_calls(row)?;
    if let Some((keys_of_calls, _)) = &calls
        && keys_of_calls.iter().map(|&keys| u64::from(keys)).sum::<u64>() != keys.len() as u64
        && let Some(value) = row.member("calls")
    {
        return Err(row.member_error("calls", "numbers of keys that sum up to the items", value));
    }
    let page = page_key.map_or(NONE, |key| number_of_key(key, items, number_by_key));
    for key in keys {
        let item = number_of_key(key, items, number_by_key);
        requests.items.push(item);
    }
    requests.numbers.push(request_number);
    requests.times_us.push(time_us);
    requests.instances.push(instance);
    requests.base_times_us.push(base_us);
    requests.pages.push(page);
    requests.routes.push(
        route_name
            .map_or(NONE, |name| intern_route(name, &mut requests.route_names, number_by_route)),
    );
    requests.starts.push(requests.items.len());
    let calls = calls.as_ref().map(|(keys_of_calls, times)| (keys_of_calls.as_slice(), *times));
    requests.calls.push(requests.len() - 1, calls);
    Ok(())
}

/// The keys of each call of a request and what they took, if the row has them.
fn request_calls(row: &JsonRow<'_>) -> Result<Option<(Vec<u32>, CallTimes)>, TraceError> {
    let Some(wait_us) = row.number("wait_us", u64::from(NONE - 1))? else {
        return Ok(None);
    };
    let number = |name| -> Result<u32, TraceError> {
        Ok(row.number(name, u32::MAX.into())?.unwrap_or(0) as u32)
    };
    let times = CallTimes {
        wait_us: wait_us as u32,
        decode_us: number("decode_us")?,
        writes: number("writes")?,
    };
    let Some(value) = row.member("calls") else {
        return Ok(Some((Vec::new(), times)));
    };
    let list_error = || row.member_error("calls", "a list of numbers", value);
    let to_number = |keys: &Value| keys.as_u64().and_then(|keys| u32::try_from(keys).ok());
    let list = value.as_array().ok_or_else(list_error)?;
    let keys_of_calls = list.iter().map(|keys| to_number(keys).ok_or_else(list_error));
    Ok(Some((keys_of_calls.collect::<Result<_, _>>()?, times)))
}

/// The keys of a request's `items`; a missing list is an empty one.
fn request_keys<'a>(row: &'a JsonRow<'_>) -> Result<Vec<&'a str>, TraceError> {
    let Some(value) = row.member("items") else {
        return Ok(Vec::new());
    };
    let list_error = || row.member_error("items", "a list of keys", value);
    let key_list = value.as_array().ok_or_else(list_error)?;
    key_list.iter().map(|key| key.as_str().ok_or_else(list_error)).collect()
}

/// The number of a key, a new item at its first use.
fn number_of_key(key: &str, items: &mut Items, number_by_key: &mut NumberByName) -> u32 {
    if let Some(&number) = number_by_key.get(key) {
        return number;
    }
    let number = items.keys.len() as u32;
    number_by_key.insert(key.to_owned(), number);
    items.keys.push(key.to_owned());
    items.parents.push(NONE);
    items.sizes.push(0);
    number
}

/// The number of a route, a new one at its first use.
pub(super) fn intern_route(
    name: &str,
    names: &mut Vec<String>,
    number_by_route: &mut NumberByName,
) -> u32 {
    if let Some(&number) = number_by_route.get(name) {
        return number;
    }
    let number = names.len() as u32;
    names.push(name.to_owned());
    number_by_route.insert(name.to_owned(), number);
    number
}

/// Writes both files.
pub(super) fn write(
    log: &RequestLog,
    items_output: &mut impl Write,
    requests_output: &mut impl Write,
) -> std::io::Result<()> {
    let key_of = |item: u32| log.items.keys.get(item as usize);
    for index in 0..log.items.len() {
        let parent = key_of(log.items.parents[index]);
        let size = Some(log.items.sizes[index]).filter(|&size| size != 0);
        let mut line =
            serde_json::json!({"key": log.items.keys[index], "parent": parent, "size": size});
        if let (Some(object), ttl_s @ 1..) = (line.as_object_mut(), log.items.ttl_s(index as u32)) {
            object.insert("ttl_s".to_owned(), ttl_s.into());
        }
        writeln!(items_output, "{line}")?;
    }
    let requests = &log.requests;
    for index in 0..requests.len() {
        let mut line = serde_json::json!({
            "request": requests.numbers[index],
            "time_us": requests.times_us[index],
            "instance": requests.instances[index],
            "base_us": requests.base_times_us[index],
            "page": key_of(requests.pages[index]),
            "items": requests.items_of(index).iter().map(|&item| key_of(item)).collect::<Vec<_>>(),
        });
        if let (Some(object), Some(route)) =
            (line.as_object_mut(), requests.route_names.get(requests.routes[index] as usize))
        {
            object.insert("route".to_owned(), Value::from(route.as_str()));
        }
        if let (Some(object), Some((keys_of_calls, times))) =
            (line.as_object_mut(), requests.calls.of(index))
        {
            object.insert("calls".to_owned(), Value::from(keys_of_calls));
            for (name, number) in [
                ("wait_us", times.wait_us),
                ("decode_us", times.decode_us),
                ("writes", times.writes),
            ] {
                object.insert(name.to_owned(), number.into());
            }
        }
        writeln!(requests_output, "{line}")?;
    }
    Ok(())
}
