//! The client over real sockets: the blocking and the tokio face, against a real server and a faulty one.
//!
//! Each story is told once, to both faces: a [`Face`] has the words of the client and waits as it can.

mod bursts;
mod face;
mod faults;
mod faulty;
mod real;
mod together;
