//! The client over real sockets: blocking and on tokio, against a server of this process and against scripted peers.
//!
//! Each test is written once for both clients: an [`EitherClient`](either_client::EitherClient) has their methods and
//! waits in its own way.

mod binary;
mod bursts;
mod coherent;
mod concurrent_calls;
mod either_client;
mod faults;
mod live_server;
mod near;
mod observer;
mod server_methods;
mod tls;
