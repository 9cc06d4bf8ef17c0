//! The jobs of `curve`, which run in parallel: one for each (policy, size) and one for LRU's curve.

use glasscache_sim::curve::{Curve, SERVER_STORE_BYTES_MIN, SampleOptions, mattson, shards};
use glasscache_sim::policy::PolicyKind;
use glasscache_sim::replay::{PreparedTrace, ReplayResult, Task};
use glasscache_sim::trace::intern::Mode;

use crate::output::Failure;
use crate::parallel::run_in_parallel;

/// Seeds of a sampled curve: enough for a spread, cheap enough to wait for.
const SAMPLE_SEEDS: u64 = 8;

/// What is to be computed.
pub(super) struct JobPlan<'a> {
    pub(super) policies: &'a [PolicyKind],
    pub(super) capacities: &'a [u64],
    pub(super) seed: u64,
    /// Keys of a sampled curve; `None` for the exact one.
    pub(super) sample_keys: Option<usize>,
    /// Threads, 0 for one a core.
    pub(super) threads: usize,
}

/// One replayed point.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplayedPoint {
    pub(super) policy: PolicyKind,
    pub(super) capacity: u64,
    pub(super) result: ReplayResult,
    /// CPU seconds of the replay.
    pub(super) cpu_s: f64,
}

/// What was computed.
pub(super) struct CurveResults {
    /// In the order of the requested policies and sizes.
    pub(super) points: Vec<ReplayedPoint>,
    /// LRU's curve: one if exact, several if sampled, none if there was no time.
    pub(super) curves: Vec<Curve>,
    /// Whether all jobs were completed.
    pub(super) is_complete: bool,
}

/// One job of a thread.
#[derive(Clone, Copy)]
enum Job {
    Replay(Task),
    ExactCurve,
    Sample(SampleOptions),
}

enum JobResult {
    /// A replay and its CPU seconds.
    Replay(ReplayResult, f64),
    Curve(Curve),
}

impl JobPlan<'_> {
    /// Runs all jobs.
    pub(super) fn run(&self, trace: &PreparedTrace) -> Result<CurveResults, Failure> {
        let jobs = self.list_jobs(trace.mode());
        let job_order = slowest_first_order(&jobs);
        let run = |position: usize| jobs[job_order[position]].run(trace);
        let outcome = run_in_parallel(jobs.len(), self.threads, "replaying", run)?;
        let mut job_results: Vec<Option<JobResult>> = jobs.iter().map(|_| None).collect();
        for (&job_index, job_result) in job_order.iter().zip(outcome.results) {
            job_results[job_index] = job_result.flatten();
        }
        Ok(collect_results(&jobs, job_results))
    }

    fn list_jobs(&self, mode: Mode) -> Vec<Job> {
        let replay = |policy: PolicyKind| {
            let seed = self.seed;
            let is_large_enough = move |capacity: &&u64| {
                let is_store = policy == PolicyKind::ServerStore && mode == Mode::Bytes;
                !is_store || **capacity >= SERVER_STORE_BYTES_MIN
            };
            self.capacities
                .iter()
                .filter(is_large_enough)
                .map(move |&capacity| Job::Replay(Task { policy, capacity, seed }))
        };
        let curves: Vec<Job> = match self.sample_keys {
            None => vec![Job::ExactCurve],
            Some(keys_max) => {
                let sample = |seed_index| {
                    Job::Sample(SampleOptions {
                        keys_max,
                        seed: self.seed.wrapping_add(seed_index),
                    })
                };
                (0..SAMPLE_SEEDS).map(sample).collect()
            }
        };
        self.policies.iter().copied().flat_map(replay).chain(curves).collect()
    }
}

impl Job {
    fn run(&self, trace: &PreparedTrace) -> Option<JobResult> {
        match *self {
            Self::Replay(task) => {
                let start_cpu_s = cpu_seconds();
                let result = task.run(trace, &|| true)?;
                Some(JobResult::Replay(result, cpu_seconds() - start_cpu_s))
            }
            Self::ExactCurve => mattson(trace, &|| true).map(JobResult::Curve),
            Self::Sample(options) => Some(JobResult::Curve(shards(trace, options))),
        }
    }

    /// Rough relative duration.
    fn relative_cost(&self) -> u32 {
        match self {
            Self::ExactCurve => 6,
            Self::Sample(_) => 1,
            Self::Replay(task) => match task.policy {
                PolicyKind::Tuned(_) => 20,
                PolicyKind::Lhd | PolicyKind::LeCar => 5,
                PolicyKind::Lfu | PolicyKind::Gdsf | PolicyKind::Lirs => 3,
                PolicyKind::Lru | PolicyKind::Fifo => 1,
                _ => 2,
            },
        }
    }
}

/// The indexes of the jobs, slowest first, so that no long job is left for the end.
fn slowest_first_order(jobs: &[Job]) -> Vec<usize> {
    let mut job_order: Vec<usize> = (0..jobs.len()).collect();
    job_order.sort_by_key(|&job_index| std::cmp::Reverse(jobs[job_index].relative_cost()));
    job_order
}

fn collect_results(jobs: &[Job], job_results: Vec<Option<JobResult>>) -> CurveResults {
    let (mut points, mut curves, mut is_complete) = (Vec::new(), Vec::new(), true);
    for (job, job_result) in jobs.iter().zip(job_results) {
        match (job, job_result) {
            (Job::Replay(task), Some(JobResult::Replay(result, cpu_s))) => {
                points.push(ReplayedPoint {
                    policy: task.policy,
                    capacity: task.capacity,
                    result,
                    cpu_s,
                });
            }
            (_, Some(JobResult::Curve(curve))) => curves.push(curve),
            _ => is_complete = false,
        }
    }
    CurveResults { points, curves, is_complete }
}

/// CPU seconds that this thread has used.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
