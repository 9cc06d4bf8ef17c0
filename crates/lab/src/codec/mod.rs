//! What a form of values costs, in bytes and in time, and which form a client should use.
//!
//! A form is a serialiser and a compressor. Values of an application are written and read in each of them; what was
//! measured is combined with the time of a call on the wire, which depends on the bytes. This module compresses
//! nothing and calls no server: a [`Packer`] and a [`PieceStore`] do, so that what is measured is what a client runs.

mod call;
mod choice;
mod dictionary;
mod measure;
mod sample;
mod storage;

pub use call::{CallParts, CodecObjective, WireTime, WireTimes};
pub use choice::{Candidate, Choice, candidate_costs, choose};
pub use dictionary::DictionaryPacker;
pub use measure::{Packed, Packer, PackerCosts, SerialiserCosts, measure};
pub use sample::{Sample, SampleError, Samples, ValueKind};
pub use storage::{
    PIECE_BYTES, PieceStore, PiecesRun, STORAGE_PASSES, StorageRow, pieces, store_pieces,
};
