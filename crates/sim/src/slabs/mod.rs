//! Slab classes of memcached: the list, its cost, and the optimum.

pub mod classes;
pub mod demand;
mod envelope;
pub mod optimum;
pub mod plan;
