//! The storage table: all values in blocks of 512 KiB, stored in a server and read three times in random order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::compressors::Compressor;
use super::sample::shuffle;
use super::value_store::ValueStore;
use crate::target::CallError;

/// Bytes of a block: two make what servers take by default.
const BLOCK_BYTES: usize = 512 << 10;

/// How often all blocks are read.
const STORAGE_PASSES: usize = 3;

/// One row of the table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StorageRow {
    /// The compressor.
    pub codec: String,
    /// Bytes of the blocks as they are stored.
    pub bytes: u64,
    /// These bytes over those before compression.
    pub ratio: f64,
    /// Time to compress and store all blocks.
    pub write_s: f64,
    /// Time to read and decompress all blocks, by pass; each has another random order.
    pub read_s: Vec<f64>,
    /// By how much the server's own count of bytes grew, headers of its items included; null if it counts none.
    pub server_bytes: Option<u64>,
    /// Blocks that were absent or not the same when read.
    pub wrong_values: u64,
}

/// The values one after the other, cut into blocks.
pub(super) fn split_into_blocks(joined_values: &[u8]) -> Vec<&[u8]> {
    joined_values.chunks(BLOCK_BYTES).collect()
}

/// How the blocks are stored and read.
#[derive(Debug)]
pub(super) struct StorageRun<'r> {
    /// The blocks.
    pub(super) blocks: &'r [&'r [u8]],
    /// Keys begin with this.
    pub(super) key_prefix: String,
    /// Decides the orders of reading.
    pub(super) seed: u64,
    /// Ends the run when set.
    pub(super) stop: &'r AtomicBool,
}

/// Stores and reads the blocks with one compressor; `None` if stopped. Removes them in every case.
pub(super) fn store_and_read_blocks(
    run: &StorageRun<'_>,
    compressor: &mut Compressor,
    store: &ValueStore<'_>,
) -> Result<Option<StorageRow>, CallError> {
    let block_key = |block_index: usize| format!("{}{block_index}", run.key_prefix);
    let row = write_and_read(run, compressor, store);
    for block_index in 0..run.blocks.len() {
        // The first error counts; after one of the connection the next call reports it again.
        let delete_result = store.delete(&block_key(block_index));
        if row.is_ok() {
            delete_result?;
        }
    }
    row
}

fn write_and_read(
    run: &StorageRun<'_>,
    compressor: &mut Compressor,
    store: &ValueStore<'_>,
) -> Result<Option<StorageRow>, CallError> {
    let block_key = |block_index: usize| format!("{}{block_index}", run.key_prefix);
    let is_stopped = || run.stop.load(Ordering::Relaxed);
    let server_bytes_before = store.stored_bytes();
    let (mut compressed_bytes, mut write_time) = (0, Duration::ZERO);
    for (block_index, block) in run.blocks.iter().enumerate() {
        if is_stopped() {
            return Ok(None);
        }
        let started = Instant::now();
        let compressed = compressor.compress(block);
        store.set(&block_key(block_index), &compressed)?;
        write_time += started.elapsed();
        compressed_bytes += compressed.bytes.len() as u64;
    }
    let server_bytes_after = store.stored_bytes();
    let (mut read_s, mut wrong_values) = (Vec::new(), 0);
    let mut block_order: Vec<usize> = (0..run.blocks.len()).collect();
    for pass in 0..STORAGE_PASSES {
        shuffle(&mut block_order, run.seed.wrapping_add(pass as u64));
        let mut read_time = Duration::ZERO;
        for &block_index in &block_order {
            if is_stopped() {
                return Ok(None);
            }
            let started = Instant::now();
            let found_block = store.get(&block_key(block_index))?;
            let plain = found_block.and_then(|compressed| compressor.decompress(&compressed));
            read_time += started.elapsed();
            wrong_values += u64::from(plain.as_deref() != run.blocks.get(block_index).copied());
        }
        read_s.push(read_time.as_secs_f64());
    }
    let plain_bytes: usize = run.blocks.iter().map(|block| block.len()).sum();
    Ok(Some(StorageRow {
        codec: compressor.name.clone(),
        bytes: compressed_bytes,
        ratio: compressed_bytes as f64 / plain_bytes.max(1) as f64,
        write_s: write_time.as_secs_f64(),
        read_s,
        server_bytes: server_bytes_after.zip(server_bytes_before).map(
            |(server_bytes_after, server_bytes_before)| {
                server_bytes_after.saturating_sub(server_bytes_before)
            },
        ),
        wrong_values,
    }))
}
