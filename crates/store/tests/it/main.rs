//! Tests of the store over its public face: one program, one topic per file.

mod backed_memory;
mod cas_uniques;
mod collisions;
mod listing;
mod memory_limit;
mod model;
mod oldest_items;
mod prefixes;
mod restart;
mod segment_waits;
mod stress;
mod working_set_fits;
