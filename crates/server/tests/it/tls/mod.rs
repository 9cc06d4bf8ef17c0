//! TLS over real sockets, with certificates made for each test.

mod certificates;
mod connections;
mod peers;
mod support;
