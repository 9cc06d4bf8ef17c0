//! Checks a request log beyond the types: parents without cycles, times in order.

use super::{Items, NONE, RequestLog};
use crate::TraceError;

/// Checks a log that was read from the two files named.
pub(super) fn check(
    log: &RequestLog,
    items_file: &str,
    requests_file: &str,
) -> Result<(), TraceError> {
    check_parents(&log.items, items_file)?;
    let times = log.requests.times_us.windows(2);
    match times.into_iter().position(|pair| pair[1] < pair[0]) {
        None => Ok(()),
        Some(index) => {
            let fault =
                "the request is older than the one before it; rows must be in the order of time";
            Err(TraceError::row(requests_file, index as u64 + 2, fault).in_column("time_us"))
        }
    }
}

/// Finds parents out of range and cycles. Each item is visited once: a walk ends at a root or at an item that was
/// already checked.
fn check_parents(items: &Items, file: &str) -> Result<(), TraceError> {
    let error_at = |index: usize, fault: String| {
        Err(TraceError::row(file, index as u64 + 1, fault).in_column("parent"))
    };
    let item_count = items.len();
    // The walk that last passed an item, counted from 1.
    let mut last_walk_by_item = vec![0_u32; item_count];
    for start in 0..item_count {
        let walk = start as u32 + 1;
        let mut index = start;
        while last_walk_by_item[index] == 0 {
            last_walk_by_item[index] = walk;
            let parent = items.parents[index];
            if parent == NONE {
                break;
            }
            if parent as usize >= item_count {
                return error_at(
                    index,
                    format!("item {parent} does not exist; the last is {}", item_count - 1),
                );
            }
            index = parent as usize;
            if last_walk_by_item[index] == walk {
                let key = &items.keys[index];
                return error_at(index, format!("item {index} (\"{key}\") is its own ancestor"));
            }
        }
    }
    Ok(())
}
