//! Tests of recordings: what reaches the folder, and the calls of both clients as they are recorded.

#[macro_use]
#[path = "../../../client/tests/it/either_client.rs"]
#[allow(dead_code, reason = "the tests of the client use all of it")]
mod either_client;
#[path = "../../../client/tests/it/live_server.rs"]
#[allow(dead_code, reason = "the tests of the client use all of it")]
mod live_server;

mod client_calls;
mod recording;
