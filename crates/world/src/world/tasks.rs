//! Tasks: the steps that each has yet to take, and the final calls, which check whether the world recovers.

use std::collections::VecDeque;

use super::calls::MUST_SUCCEED_CALL_SERIAL;
use crate::plan::{Call, Key, Micros, Operation, Plan, TaskStep};

/// How long the world waits, once nothing goes wrong any more, before calls have to succeed.
const CALM_BEFORE_FINAL_CALLS: Micros = 2_000_000;
/// Calls to a server before that, which may fail: a process has as many connections.
const BROKEN_CONNECTIONS_MAX: usize = 4;
/// The serial of such calls.
const MAY_FAIL_CALL_SERIAL: u32 = MUST_SUCCEED_CALL_SERIAL - 1;
/// How long such a call may take.
const FINAL_CALL_TIME_LIMIT: Micros = 1_000_000;

/// The tasks of a world.
pub(super) struct Tasks {
    steps_by_task: Vec<VecDeque<TaskStep>>,
    unfinished_count: usize,
    /// The last task has finished its plan: nothing goes wrong any more.
    are_faults_over: bool,
}

impl Tasks {
    pub(super) fn new(plan: &Plan) -> Self {
        let steps_by_task = plan.tasks.iter().map(|steps| steps.iter().cloned().collect());
        Self {
            steps_by_task: steps_by_task.collect(),
            unfinished_count: plan.tasks.len(),
            are_faults_over: false,
        }
    }

    pub(super) fn are_faults_over(&self) -> bool {
        self.are_faults_over
    }

    /// Takes the next step of a task.
    pub(super) fn take_step(&mut self, task: usize) -> Option<TaskStep> {
        self.steps_by_task[task].pop_front()
    }

    /// A task has no more steps. Returns whether it was the last of the plan, with which the faults end and the final
    /// calls begin.
    pub(super) fn finish(&mut self) -> bool {
        self.unfinished_count -= 1;
        let ends_faults = self.unfinished_count == 0 && !self.are_faults_over;
        self.are_faults_over |= ends_faults;
        ends_faults
    }

    /// Has a task make the final calls: to each server, of which the value under a key is read, if one is named.
    pub(super) fn begin_final_calls(&mut self, task: usize, read_keys: &[Option<Key>]) {
        let mut steps = VecDeque::from([TaskStep::Sleep(CALM_BEFORE_FINAL_CALLS)]);
        // Connections that broke unnoticed may cost a call each.
        for server in 0..read_keys.len() {
            let call = || final_call(Operation::Version(server), MAY_FAIL_CALL_SERIAL);
            steps.extend(std::iter::repeat_with(call).take(BROKEN_CONNECTIONS_MAX));
        }
        steps.push_back(TaskStep::Sleep(CALM_BEFORE_FINAL_CALLS));
        for (server, read_key) in read_keys.iter().enumerate() {
            let read = read_key.map(Operation::Get);
            let operations = read.into_iter().chain([Operation::Version(server)]);
            steps.extend(
                operations.map(|operation| final_call(operation, MUST_SUCCEED_CALL_SERIAL)),
            );
        }
        self.steps_by_task[task] = steps;
        self.unfinished_count += 1;
    }
}

fn final_call(operation: Operation, serial: u32) -> TaskStep {
    TaskStep::Call(Call { serial, operation, timeout: FINAL_CALL_TIME_LIMIT, cancel_after: None })
}
