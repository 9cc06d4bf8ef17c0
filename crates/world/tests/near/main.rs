//! A client's near cache against the server's sessions in memory: the figures of the simulator, and freshness.

mod freshness;
mod peer;
mod rollout;
mod simulator;
