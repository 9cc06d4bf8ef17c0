//! A simulated world: the client's engine against the server's sessions and store, in one thread.
//!
//! A seed draws a plan: servers, processes with clients, calls, and what goes wrong. The world runs it in virtual time
//! over a network in memory, and a checker that knows what each server executed holds the clients to their promises.
//! The same seed gives the same bytes everywhere. A plan that breaks an invariant is made shorter and its history printed.
//!
//! Only tests use this crate: `make world SEEDS=n` runs more seeds than they do.
#![forbid(unsafe_code)]

mod checker;
mod generate;
mod network;
mod plan;
mod random;
mod shrink;
mod world;

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use checker::{Invariant, Violation};
pub use generate::generate_plan;
pub use plan::{
    Call, Driver, InjectedFault, Misbehaviour, NetworkPlan, Operation, Plan, Prefix, ProcessPlan,
    Proxy, Sabotage, ServerPlan, TaskStep, Ttl, ValueWrite,
};
use shrink::shrink;
pub use world::SimulationResult;

/// Runs the world of a plan, with a log of its events if `keeps_log`; a panic in it is a violation too.
pub fn simulate(plan: &Plan, keeps_log: bool) -> SimulationResult {
    let result_or_panic = catch_unwind(AssertUnwindSafe(|| world::run(plan, keeps_log)));
    result_or_panic.unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|message| (*message).to_owned()));
        SimulationResult::from_violation(Violation {
            invariant: Invariant::NothingPanics,
            text: message.unwrap_or_default(),
        })
    })
}

/// Runs the world of a seed. If an invariant is broken, the error is the text of the shortest history found that breaks it.
pub fn check_seed(seed: u64) -> Result<SimulationResult, String> {
    let plan = generate_plan(seed);
    let result = simulate(&plan, false);
    match &result.violation {
        Some(violation) => Err(shortest_failing_history(&plan, violation)),
        None => Ok(result),
    }
}

/// The shortest history of a plan that breaks an invariant.
pub fn shortest_failing_history(plan: &Plan, violation: &Violation) -> String {
    let shortest = shrink(plan, violation.invariant, |shorter_plan| {
        simulate(shorter_plan, false).violation.map(|broken| broken.invariant)
    });
    let result = simulate(&shortest, true);
    let mut text = format!("seed {}: {violation}\n", plan.seed);
    let _ = writeln!(
        text,
        "of {} steps {} are left; servers {:?}; processes {:?}; network {:?}",
        plan.step_count(),
        shortest.step_count(),
        shortest.servers,
        shortest.processes,
        shortest.network
    );
    for line in &result.log {
        text.push_str(line);
        text.push('\n');
    }
    let final_line = result.violation.map_or(
        "run again to print this history, the shortest plan broke no invariant".to_owned(),
        |broken| broken.to_string(),
    );
    text.push_str(&final_line);
    text
}
