//! A client's near cache against the server's sessions in memory: the figures of the simulator, and freshness.

mod connected_engine;
mod freshness;
mod rollout;
mod simulator;
