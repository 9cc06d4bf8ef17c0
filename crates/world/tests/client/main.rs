//! The client over real sockets: blocking and on tokio, against a real server and a faulty one.
//!
//! Each test is written once for both clients: a [`Face`] has their methods and waits in its own way.

mod binary;
mod bursts;
mod coherent;
mod face;
mod faults;
mod faulty;
mod near;
mod observer;
mod real;
mod recording;
mod together;
