//! What a rehearsal does not measure: single gets of the log's own items, for a strategy that makes few.

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use glasscache_sim::strategy::latency_table::TimedCall;

use super::ReplayError;
use super::instance::AppInstance;

/// How many sizes of items have gets that are read.
const SIZE_COUNT: usize = 7;

/// A block ends after this many calls, or this long.
const BLOCK_CALLS: usize = 100;
const BLOCK_TIME: Duration = Duration::from_millis(100);

/// Single gets to be read for the table.
pub(super) struct SingleGets<'l> {
    /// One item of each size (key, bytes), ascending.
    items: Vec<(&'l str, u32)>,
}

impl<'l> SingleGets<'l> {
    /// Gets of these items (key, bytes), from the smallest to the largest.
    pub(super) fn new(items: &[(&'l str, u32)]) -> Result<Self, ReplayError> {
        let mut items_by_size = items.to_vec();
        items_by_size.sort_by_key(|&(_, bytes)| bytes);
        let mut chosen_items: Vec<(&str, u32)> = (0..SIZE_COUNT)
            .filter_map(|size_index| {
                items_by_size
                    .get(size_index * items_by_size.len().saturating_sub(1) / (SIZE_COUNT - 1))
            })
            .copied()
            .collect();
        chosen_items.dedup_by_key(|&mut (_, bytes)| bytes.max(1));
        if chosen_items.is_empty() {
            return Err(ReplayError::NoReads);
        }
        Ok(Self { items: chosen_items })
    }

    /// Reads a block of gets of each size, with one instance on each thread at the same time, and adds them to a list.
    pub(super) fn read(
        &self,
        instances: &[AppInstance],
        timed_calls: &mut Vec<TimedCall>,
    ) -> Result<(), ReplayError> {
        for &(key, bytes) in &self.items {
            let block_results = std::thread::scope(|scope| {
                let spawn_block = |instance| scope.spawn(move || read_block(instance, key));
                let handles: Vec<_> = instances.iter().map(spawn_block).collect();
                handles.into_iter().map(ScopedJoinHandle::join).collect::<Vec<_>>()
            });
            for block_result in block_results {
                let times_ns = block_result.map_err(|_| ReplayError::MeasuringThread)??;
                timed_calls.extend(times_ns.into_iter().map(|ns| TimedCall {
                    keys: 1,
                    bytes: u64::from(bytes),
                    ns,
                }));
            }
        }
        Ok(())
    }
}

/// The times of up to a block of gets of a key, in nanoseconds.
fn read_block(instance: &AppInstance, key: &str) -> Result<Vec<u64>, ReplayError> {
    let wire_keys = instance.wire_keys(&[key])?;
    let keys = wire_keys.all();
    let started = Instant::now();
    let mut times_ns = Vec::with_capacity(BLOCK_CALLS);
    while times_ns.len() < BLOCK_CALLS && started.elapsed() < BLOCK_TIME {
        times_ns.push(instance.read(&keys, None)?.wait_time.as_nanos() as u64);
    }
    Ok(times_ns)
}
