//! The tour: a real folder through a real server, every byte checked, and what it cost.
//!
//! Files become items under their path in the folder. They are stored over the socket, read back one at a
//! time, in pipelines and by multi-get, each comparison over every byte. This file knows nothing of how the
//! server came to run: it takes an address, a meter and a way to ask for resident bytes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;

use crate::load::{self, Batch, Check, Error, Outcome, Plan, Report, Step, Work};
use crate::proc::Meter;

/// Files of more than this many bytes do not fit memcached's default item size.
pub const FILE_BYTES_MAX: u64 = 1_000_000;

/// A tour stops collecting at this many bytes: enough for figures, little enough for any machine.
pub const FOLDER_BYTES_MAX: u64 = 256 << 20;

/// At most this many files.
const FILES_MAX: usize = 50_000;

/// Reads of a step go over the folder again until at least this many keys were asked for.
const READS_MIN: usize = 60_000;

/// Keys of a multi-get.
pub const KEYS_PER_GET: usize = 100;

/// Requests of a pipeline.
pub const PIPELINE: usize = 16;

/// Connections of a tour; one thread drives them.
const CONNECTIONS: usize = 8;

/// The files of a tour, in memory, under their paths.
#[derive(Debug)]
pub struct Folder {
    /// Where they came from.
    pub path: PathBuf,
    files: Vec<(String, Vec<u8>)>,
    /// Files left out because of their size or name.
    pub skipped: usize,
    /// There was more than a tour takes.
    pub is_cut: bool,
}

impl Folder {
    /// Reads the files under `path`, in the order of their names; those that cannot be items are skipped, and
    /// so are folders called as one of `not_in`.
    pub fn read(path: &Path, not_in: &[&str]) -> std::io::Result<Self> {
        let mut folder = Self {
            path: path.to_owned(),
            files: Vec::new(),
            skipped: 0,
            is_cut: false,
        };
        let (mut open, mut bytes) = (vec![path.to_owned()], 0_u64);
        while let Some(next) = open.pop() {
            let entries = match std::fs::read_dir(&next) {
                Ok(entries) => entries,
                // Only the folder that was named must be readable.
                Err(error) if next == path => return Err(error),
                Err(_) => continue,
            };
            let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            paths.sort_unstable();
            for path in paths {
                let Ok(meta) = path.symlink_metadata() else {
                    continue;
                };
                if meta.is_dir() {
                    let is_wanted = path
                        .file_name()
                        .is_none_or(|n| not_in.iter().all(|x| n != *x));
                    open.extend(is_wanted.then_some(path));
                } else if meta.is_file() {
                    if folder.files.len() >= FILES_MAX || bytes + meta.len() > FOLDER_BYTES_MAX {
                        folder.is_cut = true;
                        return Ok(folder);
                    }
                    bytes += folder.take(&path, meta.len());
                }
            }
        }
        Ok(folder)
    }

    /// Adds one file and returns its bytes, or counts it as skipped.
    fn take(&mut self, path: &Path, bytes: u64) -> u64 {
        let name = path
            .strip_prefix(&self.path)
            .ok()
            .and_then(Path::to_str)
            .filter(|name| is_key(name));
        let content = name
            .filter(|_| bytes <= FILE_BYTES_MAX)
            .and_then(|_| std::fs::read(path).ok());
        let (Some(name), Some(content)) = (name, content) else {
            self.skipped += 1;
            return 0;
        };
        let bytes = content.len() as u64;
        self.files.push((name.to_owned(), content));
        bytes
    }

    /// How many files there are.
    pub fn items(&self) -> usize {
        self.files.len()
    }

    /// Bytes of all names and contents.
    pub fn user_bytes(&self) -> u64 {
        self.files
            .iter()
            .map(|(name, content)| (name.len() + content.len()) as u64)
            .sum()
    }
}

/// Whether a path can be a memcached key as it is.
fn is_key(name: &str) -> bool {
    (1..=250).contains(&name.len()) && name.bytes().all(|b| b > 32 && b != 127)
}

/// A stage of the tour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
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
    pub const ALL: [Self; 4] = [Self::Store, Self::Single, Self::Pipelined, Self::MultiGet];

    const fn keys_per_get(self) -> usize {
        match self {
            Self::MultiGet => KEYS_PER_GET,
            _ => 1,
        }
    }

    const fn depth(self) -> usize {
        match self {
            Self::Pipelined => PIPELINE,
            _ => 1,
        }
    }
}

/// What a stage cost.
#[derive(Debug, Clone, Serialize)]
pub struct StageFigures {
    /// Which stage.
    pub stage: Stage,
    /// Requests answered.
    pub requests: u64,
    /// Keys in them.
    pub keys: u64,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Keys a second.
    pub keys_per_s: f64,
    /// Value bytes a second that crossed the socket.
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
    /// The first of them that was wrong or refused, in words.
    pub complaint: Option<String>,
}

/// What a tour of one server showed.
#[derive(Debug, Clone, Serialize)]
pub struct TourFigures {
    /// Which server.
    pub server: String,
    /// Its answer to `version`.
    pub version: String,
    /// Items stored.
    pub items: usize,
    /// Key and value bytes of them.
    pub user_bytes: u64,
    /// Resident bytes the server came to hold.
    pub resident_bytes: u64,
    /// One entry a stage.
    pub stages: Vec<StageFigures>,
}

impl TourFigures {
    /// User bytes per resident byte.
    pub fn density(&self) -> f64 {
        self.user_bytes as f64 / self.resident_bytes.max(1) as f64
    }

    /// Keys that failed in any stage.
    pub fn failed(&self) -> u64 {
        self.stages.iter().map(|stage| stage.failed).sum()
    }
}

/// Runs a stage; `progress` counts its keys as they come in.
pub fn run_stage(
    folder: &Arc<Folder>,
    stage: Stage,
    target: SocketAddr,
    meter: &Meter,
    stop: &Arc<AtomicBool>,
    progress: &Arc<AtomicU64>,
) -> Result<StageFigures, Error> {
    let plan = Plan {
        connections: if stage == Stage::Store {
            1
        } else {
            CONNECTIONS
        },
        depth: stage.depth(),
        check: Check::Full,
        stop: Arc::clone(stop),
        ..Plan::new(target)
    };
    let work = Visit::new(Arc::clone(folder), stage, Arc::clone(progress));
    let asked = work.left as u64;
    let (report, _) = load::run(&plan, vec![work], meter)?;
    Ok(figures(stage, &report, asked))
}

/// How many keys a stage will ask for.
pub fn keys_of(folder: &Folder, stage: Stage) -> usize {
    let items = folder.items();
    if stage == Stage::Store {
        items
    } else {
        items * READS_MIN.div_ceil(items.max(1))
    }
}

fn figures(stage: Stage, report: &Report, asked: u64) -> StageFigures {
    let tally = &report.tally;
    let good = tally.hits + tally.stored;
    let server_us = report.server.cpu_s() * 1e6;
    let moved = if stage == Stage::Store {
        tally.sent_bytes
    } else {
        tally.received_bytes
    };
    StageFigures {
        stage,
        requests: tally.requests,
        keys: good,
        requests_per_s: report.rate(),
        keys_per_s: good as f64 / report.seconds.max(1e-9),
        bytes_per_s: moved as f64 / report.seconds.max(1e-9),
        latency_us_p50: tally.latency_us(50.0),
        latency_us_p99: tally.latency_us(99.0),
        latency_us_p999: tally.latency_us(99.9),
        server_cpu_us: report.cpu_us(),
        server_cpu_us_per_key: server_us / good.max(1) as f64,
        failed: asked.saturating_sub(good),
        complaint: tally.difference.clone().or_else(|| tally.refusal.clone()),
    }
}

/// One stage's work: the files in order, over and over until enough were asked for.
struct Visit {
    folder: Arc<Folder>,
    stage: Stage,
    next: usize,
    left: usize,
    ids: Vec<u64>,
    progress: Arc<AtomicU64>,
}

impl Visit {
    fn new(folder: Arc<Folder>, stage: Stage, progress: Arc<AtomicU64>) -> Self {
        let left = keys_of(&folder, stage);
        Self {
            folder,
            stage,
            next: 0,
            left,
            ids: Vec::new(),
            progress,
        }
    }

    fn file(&self, id: u64) -> Option<&(String, Vec<u8>)> {
        self.folder.files.get(id as usize)
    }
}

impl Work for Visit {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> Step {
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        while ids.len() < self.stage.keys_per_get().min(self.folder.items()) && self.left > 0 {
            ids.push((self.next % self.folder.items()) as u64);
            self.next += 1;
            self.left -= 1;
        }
        let step = match (ids.first(), self.stage) {
            (None, _) => Step::Finished,
            (Some(&id), Stage::Store) => {
                batch.set(self, id, 0);
                Step::Sent
            }
            _ => {
                batch.get(self, &ids);
                Step::Sent
            }
        };
        self.ids = ids;
        step
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(self.file(id).map_or(b"", |(name, _)| name.as_bytes()));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.file(id).map_or(b"", |(_, content)| content.as_slice())
    }

    fn done(&mut self, _connection: usize, _id: u64, _outcome: Outcome) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_control_bytes_or_too_many_bytes_are_no_keys() {
        assert!(is_key("asyncio/base_events.py") && is_key("ä"));
        assert!(!is_key("a b") && !is_key("a\n") && !is_key("") && !is_key(&"x".repeat(251)));
    }

    #[test]
    fn a_folder_is_read_with_its_subfolders_in_order() {
        let path = std::env::temp_dir().join(format!("glasscache-tour-{}", std::process::id()));
        std::fs::create_dir_all(path.join("sub")).unwrap();
        std::fs::create_dir_all(path.join("not")).unwrap();
        std::fs::write(path.join("not/c"), b"1").unwrap();
        std::fs::write(path.join("b"), b"22").unwrap();
        std::fs::write(path.join("sub/a c"), b"333").unwrap();
        std::fs::write(path.join("sub/a"), b"").unwrap();
        let folder = Folder::read(&path, &["not"]).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(
            (folder.items(), folder.user_bytes(), folder.skipped),
            (2, 3 + 5, 1)
        );
    }
}
