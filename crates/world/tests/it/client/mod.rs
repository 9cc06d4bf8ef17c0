//! The client over real sockets: blocking and on tokio, against a real server and a faulty one.
//!
//! Each test is written once for both clients: an [`EitherClient`] has their methods and waits in its own way.

mod binary;
mod bursts;
mod coherent;
mod concurrent_calls;
mod either_client;
mod faults;
mod faulty_server;
mod near;
mod observer;
mod recording;
mod server_methods;
