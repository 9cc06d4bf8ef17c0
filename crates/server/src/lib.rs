//! The memcached-compatible server: listeners, epoll workers and command execution.
//!
//! [`start`] gives a running server inside this process, for the command line, the tour, the tests.
//! `protocol` interprets bytes and `store` keeps items; this crate moves bytes between them and sockets, on N
//! threads that share nothing but the store and a few registries.
//!
//! Three folders, each using only those to its right: `net` has the sockets, `session` the protocol without them,
//! `shared` the state that all threads see.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::print_stdout,
        clippy::print_stderr
    )
)]

mod failure;
mod http;
mod in_memory;
mod launch;
mod live_thread;
mod login_thread;
mod net;
mod prepared;
mod replacement;
mod restartable_memory;
mod running;
mod server_control;
mod session;
mod shared;
mod start_latch;
#[cfg(test)]
mod statistics_page_test;
mod stderr;
mod successor;
mod systemd;
mod threads;
mod watchdog;

pub use glasscache_store::tuning::Goal as TuningGoal;
pub use in_memory::{InMemoryConnection, InMemorySession, InMemoryWorker, pieces};
pub use ipnet::IpNet;
pub use launch::start;
pub use prepared::{BoundServer, CheckedServer, PreparedServer, bind, check, prepare};
pub use replacement::{ConnectedReplacement, PreparedReplacement, prepare_replacement};
pub use restartable_memory::RestartableMemory;
pub use running::RunningServer;
pub use server_control::ServerControl;
pub use shared::address::Address;
pub use shared::cancellation::Cancellation;
pub use shared::config::{
    ClientCertificate, Config, DisplayedSettings, HttpListen, HttpSettings, Listen, Protocols,
    TlsSettings, UsersFile, UsersFileFormat,
};
pub use shared::error::Error;
pub use shared::log_output::{LogLevel, LogStyle};
pub use shared::memory_file::{check_folder_of, give_memory_file};
pub use stderr::{print_without_waiting, write_without_waiting};
pub use systemd::notify;

const _: () =
    assert!(glasscache_protocol::KEY_BYTES_MAX <= glasscache_store::KEY_BYTES_MAX, "key limits");
