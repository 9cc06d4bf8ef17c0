//! What a form of values costs, in bytes and in time, and which form a client should use.
//!
//! A form is a serialiser and a compressor. Values of an application are written and read in each of them; what was
//! measured is combined with the time of a call without conversion, which depends on the bytes. What is measured is what
//! a client runs: its own compressors, its calls, and Python's serialisers in a child process.
//!
//! A *block* is 512 KiB of all values in sequence, the unit of the storage table.

mod call;
mod calls;
mod choice;
mod compressor_name;
mod compressors;
mod costs;
mod forms;
mod in_use;
mod measure;
mod prefixes;
mod python;
mod report;
mod result;
mod run;
mod sample;
mod storage;
mod value_store;

pub use in_use::CodecInUse;
pub use run::{Settings, run};
pub use sample::{SampleError, Samples, VALUE_BYTES_MAX, holds_lines};
