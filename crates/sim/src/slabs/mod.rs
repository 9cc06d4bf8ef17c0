//! Slab classes of memcached: which there are, what they cost, and the best that can be had.

pub mod classes;
pub mod demand;
mod envelope;
pub mod optimum;
pub mod plan;
