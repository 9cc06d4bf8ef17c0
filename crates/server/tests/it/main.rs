//! Tests of the server over real sockets and of its public face: one program, one topic per file.

mod admin;
mod binary;
mod collisions;
mod flushes;
mod http;
mod live_figures;
mod live_server;
mod login;
mod memory;
mod prefixes;
mod proxy_header;
mod quotas;
mod read_ahead;
mod restart;
mod session_rules;
mod sockets;
mod splits;
mod statistics_only;
mod timing;
mod tls;
mod uploads;
mod watch;
