//! Request logs: written logs are read back, and an invalid log causes one error sentence.

use glasscache_sim::TraceError;
use glasscache_sim::trace::InMemoryFile;
use glasscache_sim::trace::log::{NONE, RequestLog};
use proptest::prelude::*;

const ITEM_LINES: &str =
    "{\"key\":\"a\",\"size\":10}\n{\"key\":\"b\",\"parent\":\"a\",\"size\":20}\n";

fn read_log(item_lines: &str, request_lines: &str) -> Result<RequestLog, TraceError> {
    RequestLog::read(
        ("items.jsonl", InMemoryFile::new(item_lines.as_bytes())),
        ("requests.jsonl", InMemoryFile::new(request_lines.as_bytes())),
    )
}

fn read_error(item_lines: &str, request_lines: &str) -> String {
    read_log(item_lines, request_lines).unwrap_err().to_string()
}

/// The line of a request at this time that reads these items.
fn request_line(time_us: u64, item_list: &str) -> String {
    format!(
        "{{\"request\":1,\"time_us\":{time_us},\"instance\":2,\"base_us\":9,\"items\":[{item_list}]}}\n"
    )
}

#[test]
fn unlisted_keys_are_numbered_after_listed_ones() {
    let log = read_log(
        ITEM_LINES,
        &(request_line(1, "\"x\",\"b\"") + &request_line(2, "\"y\",\"x\",\"x\"")),
    )
    .unwrap();
    assert_eq!(log.items.keys, ["a", "b", "x", "y"]);
    assert_eq!(log.items.parents, [NONE, 0, NONE, NONE]);
    assert_eq!(log.items.sizes, [10, 20, 0, 0]);
    assert_eq!(log.requests.items_of(0), [2, 1]);
    assert_eq!(log.requests.items_of(1), [3, 2, 2]);
    assert_eq!(log.truncated_after, None);
}

#[test]
fn a_truncated_log_keeps_complete_requests() {
    let complete_lines = request_line(1, "\"a\"") + &request_line(2, "");
    let log = read_log(ITEM_LINES, &complete_lines[..complete_lines.len() - 9]).unwrap();
    assert_eq!((log.requests.len(), log.truncated_after), (1, Some(1)));
}

#[test]
fn rejects_a_cycle_among_parents() {
    let item_lines = "{\"key\":\"a\",\"parent\":\"b\"}\n{\"key\":\"b\",\"parent\":\"a\"}\n";
    assert_eq!(
        read_error(item_lines, ""),
        "items.jsonl, row 1, column parent: item 0 (\"a\") is its own ancestor"
    );
    assert_eq!(
        read_error("{\"key\":\"a\",\"parent\":\"z\"}\n", ""),
        "items.jsonl, row 1, column parent: the parent \"z\" is not in the file"
    );
}

#[test]
fn rejects_unordered_requests_and_wrong_values() {
    assert_eq!(
        read_error(ITEM_LINES, &(request_line(5, "") + &request_line(4, ""))),
        "requests.jsonl, row 2, column time_us: the request is older than the one before it; \
         rows must be in the order of time"
    );
    assert_eq!(
        read_error("{\"key\":\"a\",\"size\":-1}\n", ""),
        "items.jsonl, row 1, column size: expected a whole number from 0 to 4294967295, found -1"
    );
    assert_eq!(
        read_error(ITEM_LINES, "{\"time_us\":1,\"base_us\":2,\"items\":[3]}\n"),
        "requests.jsonl, row 1, column items: expected a list of keys, found [3]"
    );
}

fn any_log() -> impl Strategy<Value = RequestLog> {
    let request = (
        0..5_u64,
        any::<u16>(),
        any::<u32>(),
        prop::option::of(0..8_u32),
        prop::option::of(0..3_usize),
        prop::collection::vec(0..8_u32, 0..6),
    );
    prop::collection::vec(request, 0..30).prop_map(|requests| {
        let mut log = RequestLog::default();
        for item in 0..8 {
            log.items.keys.push(format!("k{item}"));
            log.items.parents.push(if item == 0 { NONE } else { item / 2 });
            log.items.sizes.push(item * 100);
            log.items.set_ttl_s(item, item % 3);
        }
        // The route names in the order of first use, as a reader numbers them.
        let log_requests = &mut log.requests;
        log_requests.starts.push(0);
        let mut time_us = 0;
        for (number, (step_us, instance, base_us, page, route, items)) in
            requests.into_iter().enumerate()
        {
            time_us += step_us;
            log_requests.numbers.push(number as u64);
            log_requests.times_us.push(time_us);
            log_requests.instances.push(instance);
            log_requests.base_times_us.push(base_us);
            log_requests.pages.push(page.unwrap_or(NONE));
            let route_name = route.map(|route| format!("r{route}"));
            let route_index =
                |name: &String| log_requests.route_names.iter().position(|listed| listed == name);
            let route = match &route_name {
                None => NONE,
                Some(route_name) => {
                    route_index(route_name).unwrap_or(log_requests.route_names.len()) as u32
                }
            };
            if let Some(route_name) =
                route_name.filter(|_| route as usize == log_requests.route_names.len())
            {
                log_requests.route_names.push(route_name);
            }
            log_requests.routes.push(route);
            log_requests.items.extend(items);
            log_requests.starts.push(log_requests.items.len());
        }
        log
    })
}

proptest! {
    #[test]
    fn written_logs_are_read_back(log in any_log()) {
        let (mut items_bytes, mut requests_bytes) = (Vec::new(), Vec::new());
        log.write_jsonl(&mut items_bytes, &mut requests_bytes).unwrap();
        let to_text = |bytes| String::from_utf8(bytes).unwrap();
        prop_assert_eq!(&read_log(&to_text(items_bytes), &to_text(requests_bytes)).unwrap(), &log);
        #[cfg(feature = "parquet")]
        {
            let (mut items_bytes, mut requests_bytes) = (Vec::new(), Vec::new());
            log.write_parquet(&mut items_bytes, &mut requests_bytes).unwrap();
            let log_read = RequestLog::read(
                ("i.parquet", InMemoryFile::new(items_bytes)),
                ("r.parquet", InMemoryFile::new(requests_bytes)),
            );
            prop_assert_eq!(&log_read.unwrap(), &log);
        }
    }
}
