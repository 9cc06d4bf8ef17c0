//! Tests of the built binary, over real sockets and real processes: one test binary, one topic per file.

mod bench;
mod bench_inputs;
mod bench_pause;
mod codec;
mod conformance;
mod conformance_binary;
mod conformance_login;
mod deploy;
mod encryption;
mod help;
mod inspect;
mod liveness;
mod logs;
mod memory;
mod profile;
mod record;
mod record_proxy;
mod replace;
mod replay;
mod report;
mod restart;
mod serve;
mod server;
mod small_commands;
mod warm;
mod widths;
