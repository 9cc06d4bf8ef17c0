//! Makes a failing plan shorter: steps are left out as long as the same invariant is broken.

use crate::checker::Invariant;
use crate::plan::Plan;

/// Runs that are spent on one plan, at most.
const RUNS_MAX: usize = 600;

/// The shortest plan found that breaks `invariant` as `plan` does; `broken` runs a plan.
pub(crate) fn shrink(
    plan: &Plan,
    invariant: Invariant,
    broken: impl Fn(&Plan) -> Option<Invariant>,
) -> Plan {
    let mut best = plan.clone();
    let mut runs = 0;
    let mut size = best.length().div_ceil(2);
    while size > 0 && runs < RUNS_MAX {
        let mut from = 0;
        let mut has_shrunk = false;
        while from < best.length() && runs < RUNS_MAX {
            let shorter = without(&best, from, size);
            runs += 1;
            if broken(&shorter) == Some(invariant) {
                best = shorter;
                has_shrunk = true;
            } else {
                from += size;
            }
        }
        if size == 1 && !has_shrunk {
            break;
        }
        size = if has_shrunk && size == 1 { 1 } else { size / 2 };
    }
    best
}

/// The plan less `size` steps from the `from`th on, counted over all tasks.
fn without(plan: &Plan, from: usize, size: usize) -> Plan {
    let mut shorter = plan.clone();
    let mut nth = 0;
    for task in &mut shorter.tasks {
        task.retain(|_| {
            nth += 1;
            !(from + 1..=from + size).contains(&nth)
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
        let plan = generate::plan(1);
        let length = plan.length();
        assert_eq!(without(&plan, 0, 3).length(), length - 3);
        assert_eq!(without(&plan, length - 2, 5).length(), length - 2);
        assert_eq!(without(&plan, length, 5).length(), length);
    }
}
