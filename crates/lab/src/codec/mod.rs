//! What a form of values costs, in bytes and in time, and which form a client should use.
//!
//! A form is a serialiser and a compressor. Values of an application are written and read in each of them; what was
//! measured is combined with the time of a call without conversion, which depends on the bytes. This module compresses
//! nothing and calls no server: a [`Compressor`] and a [`BlockStore`] do, so that what is measured is what a client runs.
//!
//! A *block* is 512 KiB of all values in sequence, the unit of the storage table.

mod call;
mod choice;
mod dictionary;
mod measure;
mod sample;
mod storage;

pub use call::{CallParts, CallTime, CallTimes, CodecObjective};
pub use choice::{Candidate, Choice, choose, evaluate_candidate};
pub use dictionary::DictionaryCompressor;
pub use measure::{Compressed, Compressor, CompressorCosts, SerialiserCosts, measure};
pub use sample::{Sample, SampleError, Samples, VALUE_BYTES_MAX, ValueKind, holds_lines};
pub use storage::{
    BLOCK_BYTES, BlockStore, STORAGE_PASSES, StorageRow, StorageRun, split_into_blocks,
    store_and_read_blocks,
};
