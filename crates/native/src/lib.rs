//! The Python extension module: conversion, release of the interpreter lock, errors.
//!
//! Decisions and defaults are Python's and the client's; users see `glasscache`, never this module.
#![forbid(unsafe_code)]
// PyO3 hands arguments over by value, and Python's exceptions carry text that is made lazily.
#![expect(clippy::needless_pass_by_value, reason = "the signatures are what PyO3 calls")]
#![expect(
    clippy::doc_markdown,
    clippy::doc_link_with_quotes,
    reason = "the comments of methods are Python docstrings"
)]

use glasscache_features as _;
use pyo3::prelude::*;

mod admin;
mod aio;
mod bulk;
mod client;
mod client_settings;
mod client_state;
mod computed_value;
mod cooperative;
mod deadline;
mod error;
mod int_lists;
mod interpreter_lock;
mod keys;
mod misses;
mod near;
mod near_reading;
mod pipeline;
mod recorded_read;
mod recording;
mod reply;
mod request_head;
mod settings;
mod signals;
mod sim;
mod split;
mod stats_dicts;
mod ttl;
mod typed;
mod value;

/// Trains glibc's allocator for large blocks: it raises the size from which it
/// gives memory back at once to what it has seen freed. Without it each value of 100 KB grows and shrinks
/// the heap by system calls and page faults, and its read takes twice as long.
fn train_allocator() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(4 << 20)));
}

/// The native half of the package `glasscache`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<client_state::ClientState>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<settings::Codec>()?;
    module.add_class::<aio::AsyncClient>()?;
    module.add_class::<aio::Connection>()?;
    module.add_class::<aio::DelayedCall>()?;
    module.add_class::<aio::BulkCall>()?;
    module.add_class::<split::Manifest>()?;
    module.add_class::<computed_value::ComputedValue>()?;
    module.add_class::<aio::PendingNearRead>()?;
    module.add_class::<near::Strategy>()?;
    module.add_class::<near::RequestScope>()?;
    module.add_class::<recording::Recorder>()?;
    module.add_class::<recording::RecordedRequest>()?;
    module.add_class::<recording::RequestBlock>()?;
    module.add_class::<recording::UnrecordedBlock>()?;
    module.add_class::<request_head::HeadScanner>()?;
    train_allocator();
    interpreter_lock::set_time_origin();
    module.add_function(wrap_pyfunction!(settings::server_indices, module)?)?;
    module.add_function(wrap_pyfunction!(keys::check_parent, module)?)?;
    module.add_function(wrap_pyfunction!(request_head::environ_fields, module)?)?;
    module.add_function(wrap_pyfunction!(keys::hashed_session_key, module)?)?;
    module.add_function(wrap_pyfunction!(keys::is_session_key, module)?)?;
    module.add("PARTS", stats_dicts::part_names())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    sim::add_to_module(module)?;
    Ok(())
}
