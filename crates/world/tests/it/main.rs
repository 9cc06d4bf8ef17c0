//! Tests of the simulated world and of the client against servers: one program, one topic per file.

mod client;
mod near;
mod sabotage;
mod seeds;
