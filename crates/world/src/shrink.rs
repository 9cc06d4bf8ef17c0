//! Makes a failing plan shorter: steps are left out as long as the same invariant is broken.

use crate::checker::Invariant;
use crate::plan::Plan;

/// Runs that are spent on one plan, at most.
const RUNS_MAX: usize = 600;

/// The shortest plan found that breaks `invariant` as `plan` does; `broken_invariant` runs a plan.
pub(crate) fn shrink(
    plan: &Plan,
    invariant: Invariant,
    broken_invariant: impl Fn(&Plan) -> Option<Invariant>,
) -> Plan {
    let mut shortest = plan.clone();
    let mut runs = 0;
    let mut removed_steps = shortest.step_count().div_ceil(2);
    while removed_steps > 0 && runs < RUNS_MAX {
        let mut first_step = 0;
        let mut has_shrunk = false;
        while first_step < shortest.step_count() && runs < RUNS_MAX {
            let shorter = without_steps(&shortest, first_step, removed_steps);
            runs += 1;
            if broken_invariant(&shorter) == Some(invariant) {
                shortest = shorter;
                has_shrunk = true;
            } else {
                first_step += removed_steps;
            }
        }
        if removed_steps == 1 && !has_shrunk {
            break;
        }
        removed_steps = if has_shrunk && removed_steps == 1 {
            1
        } else {
            removed_steps / 2
        };
    }
    shortest
}

/// The plan less `removed_steps` steps from the `first_step`th on, counted over all tasks.
fn without_steps(plan: &Plan, first_step: usize, removed_steps: usize) -> Plan {
    let mut shorter = plan.clone();
    let mut step_index = 0;
    for task in &mut shorter.tasks {
        task.retain(|_| {
            step_index += 1;
            !(first_step + 1..=first_step + removed_steps).contains(&step_index)
        });
    }
    shorter
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn steps_are_left_out_wherever_they_are() {
        let plan = generate::generate_plan(1);
        let length = plan.step_count();
        assert_eq!(without_steps(&plan, 0, 3).step_count(), length - 3);
        assert_eq!(without_steps(&plan, length - 2, 5).step_count(), length - 2);
        assert_eq!(without_steps(&plan, length, 5).step_count(), length);
    }
}
