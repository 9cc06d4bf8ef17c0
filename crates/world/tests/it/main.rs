//! Tests of the simulated world, and of the near cache against servers in memory: one program, one topic per file.

mod near;
mod sabotage;
mod seeds;
