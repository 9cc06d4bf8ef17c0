//! Makes a failing plan shorter: steps are left out as long as the same invariant is broken.

use crate::checker::Invariant;
use crate::plan::Plan;

/// Runs that are spent on one plan, at most.
const RUNS_MAX: usize = 600;

/// The shortest plan found that breaks `invariant` as `plan` does; `find_broken_invariant` runs a plan.
pub(crate) fn shrink(
    plan: &Plan,
    invariant: Invariant,
    find_broken_invariant: impl Fn(&Plan) -> Option<Invariant>,
) -> Plan {
    let mut shortest = plan.clone();
    let mut run_count = 0;
    let mut removed_count = shortest.step_count().div_ceil(2);
    while removed_count > 0 && run_count < RUNS_MAX {
        let mut first_step_index = 0;
        let mut has_shrunk = false;
        while first_step_index < shortest.step_count() && run_count < RUNS_MAX {
            let shorter = without_steps(&shortest, first_step_index, removed_count);
            run_count += 1;
            if find_broken_invariant(&shorter) == Some(invariant) {
                shortest = shorter;
                has_shrunk = true;
            } else {
                first_step_index += removed_count;
            }
        }
        if removed_count == 1 && !has_shrunk {
            break;
        }
        removed_count = if has_shrunk && removed_count == 1 { 1 } else { removed_count / 2 };
    }
    shortest
}

/// The plan without `removed_count` steps, from the one at `first_step_index` on, counted over all tasks.
fn without_steps(plan: &Plan, first_step_index: usize, removed_count: usize) -> Plan {
    let mut shorter = plan.clone();
    let mut step_index = 0;
    for task in &mut shorter.tasks {
        task.retain(|_| {
            step_index += 1;
            !(first_step_index + 1..=first_step_index + removed_count).contains(&step_index)
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
        let step_count = plan.step_count();
        assert_eq!(without_steps(&plan, 0, 3).step_count(), step_count - 3);
        assert_eq!(without_steps(&plan, step_count - 2, 5).step_count(), step_count - 2);
        assert_eq!(without_steps(&plan, step_count, 5).step_count(), step_count);
    }
}
