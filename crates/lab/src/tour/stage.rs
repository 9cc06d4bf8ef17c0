//! One stage of a tour: all files stored, or read in one of three ways.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;

use super::folder::Folder;
use crate::load::{
    self, Batch, Error, KeyResult, LoadPlan, NextStep, Report, ValueCheck, Workload,
};
use crate::proc::Meter;

/// A read stage repeats the folder until at least this many keys were requested.
const KEYS_READ_MIN: usize = 60_000;

/// Keys of a multi-get.
pub(super) const KEYS_PER_GET: usize = 100;

/// Requests of a pipeline.
pub(super) const PIPELINE_DEPTH: usize = 16;

/// Connections of a tour; one thread drives them.
const CONNECTIONS: usize = 8;

/// A stage of the tour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Stage {
    /// One set a file.
    Store,
    /// One get at a time.
    Single,
    /// Gets in pipelines.
    Pipelined,
    /// Gets of many keys.
    MultiGet,
}

impl Stage {
    /// All of them, in the order of the tour.
    pub(super) const ALL: [Self; 4] = [Self::Store, Self::Single, Self::Pipelined, Self::MultiGet];

    /// Its name for the reader.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Single => "read singly",
            Self::Pipelined => "read, pipelined",
            Self::MultiGet => "read, multi-get",
        }
    }

    const fn keys_per_get(self) -> usize {
        match self {
            Self::MultiGet => KEYS_PER_GET,
            _ => 1,
        }
    }

    const fn depth(self) -> usize {
        match self {
            Self::Pipelined => PIPELINE_DEPTH,
            _ => 1,
        }
    }
}

/// What a stage cost.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StageFigures {
    /// Which stage.
    pub stage: Stage,
    /// Completed requests.
    pub requests: u64,
    /// Keys stored or found with their value.
    pub keys: u64,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Keys a second.
    pub keys_per_s: f64,
    /// Bytes a second that crossed the socket in the direction of the values.
    pub bytes_per_s: f64,
    /// Latency of a request, median.
    pub latency_us_p50: f64,
    /// 99th percentile.
    pub latency_us_p99: f64,
    /// 99.9th percentile.
    pub latency_us_p999: f64,
    /// CPU of the server per request.
    pub server_cpu_us: f64,
    /// CPU of the server per key.
    pub server_cpu_us_per_key: f64,
    /// Keys that were absent, refused or wrong.
    pub failed: u64,
    /// A description of the first of them.
    pub complaint: Option<String>,
}

/// Runs a stage; `progress` counts its keys.
pub(super) fn run_stage(
    folder: &Arc<Folder>,
    stage: Stage,
    target: SocketAddr,
    meter: &Meter,
    stop: &Arc<AtomicBool>,
    progress: &Arc<AtomicU64>,
) -> Result<StageFigures, Error> {
    let plan = LoadPlan {
        connections: if stage == Stage::Store { 1 } else { CONNECTIONS },
        depth: stage.depth(),
        check: ValueCheck::Full,
        stop: Arc::clone(stop),
        ..LoadPlan::new(target)
    };
    let workload = StageWorkload::new(Arc::clone(folder), stage, Arc::clone(progress));
    let expected_keys = workload.keys_left as u64;
    let (report, _) = load::run(&plan, vec![workload], meter)?;
    Ok(compute_stage_figures(stage, &report, expected_keys))
}

/// How many keys a stage requests.
pub(super) fn count_requested_keys(folder: &Folder, stage: Stage) -> usize {
    let items = folder.items();
    if stage == Stage::Store { items } else { items * KEYS_READ_MIN.div_ceil(items.max(1)) }
}

fn compute_stage_figures(stage: Stage, report: &Report, expected_keys: u64) -> StageFigures {
    let tally = &report.tally;
    let succeeded = tally.hits + tally.stored;
    let server_us = report.server_cpu.cpu_s() * 1e6;
    let socket_bytes = if stage == Stage::Store { tally.sent_bytes } else { tally.received_bytes };
    StageFigures {
        stage,
        requests: tally.requests,
        keys: succeeded,
        requests_per_s: report.rate(),
        keys_per_s: succeeded as f64 / report.seconds.max(1e-9),
        bytes_per_s: socket_bytes as f64 / report.seconds.max(1e-9),
        latency_us_p50: tally.latency_us(50.0),
        latency_us_p99: tally.latency_us(99.0),
        latency_us_p999: tally.latency_us(99.9),
        server_cpu_us: report.cpu_us(),
        server_cpu_us_per_key: server_us / succeeded.max(1) as f64,
        failed: expected_keys.saturating_sub(succeeded),
        complaint: tally
            .first_difference
            .clone()
            .or_else(|| tally.first_refusal.clone())
            .or_else(|| (tally.misses > 0).then(|| format!("{} keys were absent", tally.misses))),
    }
}

/// The workload of a stage: the files in order, repeated until enough keys were requested.
struct StageWorkload {
    folder: Arc<Folder>,
    stage: Stage,
    next_file_index: usize,
    keys_left: usize,
    scratch_ids: Vec<u64>,
    progress: Arc<AtomicU64>,
}

impl StageWorkload {
    fn new(folder: Arc<Folder>, stage: Stage, progress: Arc<AtomicU64>) -> Self {
        let keys_left = count_requested_keys(&folder, stage);
        Self { folder, stage, next_file_index: 0, keys_left, scratch_ids: Vec::new(), progress }
    }

    fn file(&self, id: u64) -> Option<&(String, Vec<u8>)> {
        self.folder.files.get(id as usize)
    }
}

impl Workload for StageWorkload {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> NextStep {
        let mut ids = std::mem::take(&mut self.scratch_ids);
        ids.clear();
        while ids.len() < self.stage.keys_per_get().min(self.folder.items()) && self.keys_left > 0 {
            ids.push((self.next_file_index % self.folder.items()) as u64);
            self.next_file_index += 1;
            self.keys_left -= 1;
        }
        let next_step = match (ids.first(), self.stage) {
            (None, _) => NextStep::Finished,
            (Some(&id), Stage::Store) => {
                batch.set(self, id, 0);
                NextStep::Sent
            }
            _ => {
                batch.get(self, &ids);
                NextStep::Sent
            }
        };
        self.scratch_ids = ids;
        next_step
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(self.file(id).map_or(b"", |(name, _)| name.as_bytes()));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.file(id).map_or(b"", |(_, content)| content.as_slice())
    }

    fn on_result(&mut self, _connection: usize, _id: u64, _result: KeyResult) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }
}
