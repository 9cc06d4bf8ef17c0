//! The thread that writes parts of the log: files beside their names and renamed, so that none is ever incomplete.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use glasscache_sim::trace::log::keys_and_patterns_of;
use serde_json::{Map, Value, json};

use crate::finished::{FinishedRequest, RequestBatch};
use crate::folder::{TEMPORARY_SUFFIX, parse_part_name};
use crate::meta::changed_of_meta;
use crate::options::{FileFormat, Options};
use crate::part::LogPart;
use crate::writer_queue::{Inbox, WriterState};

/// Starts the thread. Without a `log_folder` it opens one with the first request that has finished, so that a process
/// which records nothing, as the parent of forked workers, takes no number.
pub(crate) fn start_writer(
    options: Arc<Options>,
    log_folder: Option<LogFolder>,
    inbox: Arc<Inbox>,
    state: Arc<WriterState>,
) -> io::Result<()> {
    let run = move || {
        let writer = Writer {
            options,
            state,
            log_folder,
            part: LogPart::default(),
            part_started_at: Instant::now(),
        };
        writer.run(&inbox);
    };
    std::thread::Builder::new().name("glasscache-log".to_owned()).spawn(run).map(|_| ())
}

/// A batch of more memory than this is not kept.
const KEPT_BATCH_BYTES_MAX: usize = 1 << 20;

struct Writer {
    options: Arc<Options>,
    state: Arc<WriterState>,
    /// `None` until the first request, unless the recorder was opened with its number.
    log_folder: Option<LogFolder>,
    part: LogPart,
    /// When the first request of the part came.
    part_started_at: Instant,
}

impl Writer {
    fn run(mut self, inbox: &Inbox) {
        let mut batch = RequestBatch::default();
        let mut is_open = true;
        while is_open {
            let age = self.part_started_at.elapsed();
            let time_left = self.options.rotate_after.saturating_sub(age);
            is_open = inbox.take(&mut batch, (self.part.len() > 0).then_some(time_left));
            batch.for_each(|request| self.add(request));
            batch = emptied(batch);
            if self.part_started_at.elapsed() >= self.options.rotate_after {
                self.write_part();
            }
        }
        self.write_part();
        // Its number is free before any thread learns that it is finished.
        self.log_folder = None;
        self.state.finish();
    }

    fn add(&mut self, request: &FinishedRequest<'_>) {
        if self.state.has_failed.load(Relaxed) {
            self.state.count_submitted_as_dropped(1, request.footprint_bytes());
            return;
        }
        let Some(instance) = self.open_folder() else {
            self.state.count_submitted_as_dropped(1, request.footprint_bytes());
            return;
        };
        if self.part.len() == 0 {
            self.part_started_at = Instant::now();
        }
        self.part.add(request, instance, &self.options);
        if self.part.footprint_bytes() >= self.options.part_bytes() {
            self.write_part();
        }
    }

    /// Opens the folder, if it is not open. Returns this process's number in it, or `None` after a failure.
    fn open_folder(&mut self) -> Option<u16> {
        if let Some(log_folder) = &self.log_folder {
            return Some(log_folder.instance);
        }
        match LogFolder::open(&self.options) {
            Ok(log_folder) => Some(self.log_folder.insert(log_folder).instance),
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    fn write_part(&mut self) {
        let part = std::mem::take(&mut self.part);
        let (request_count, footprint_bytes) = (part.len(), part.footprint_bytes());
        let Some(log_folder) = self.log_folder.as_mut().filter(|_| request_count > 0) else {
            return;
        };
        let dropped = self.state.dropped.load(Relaxed);
        match log_folder.write(part, dropped, &self.options) {
            Ok(written_bytes) => {
                self.state.unwritten_bytes.fetch_sub(footprint_bytes, Relaxed);
                self.state.parts.fetch_add(1, Relaxed);
                self.state.written_bytes.fetch_add(written_bytes, Relaxed);
            }
            Err(error) => {
                self.fail(&error);
                self.state.count_submitted_as_dropped(request_count as u64, footprint_bytes);
            }
        }
    }

    fn fail(&self, error: &io::Error) {
        self.state.fail_folder(&self.options.folder, error);
    }
}

/// The same batch without requests; one that has become large gives its memory back.
fn emptied(mut batch: RequestBatch) -> RequestBatch {
    if batch.footprint_bytes() > KEPT_BATCH_BYTES_MAX {
        return RequestBatch::default();
    }
    batch.clear();
    batch
}

/// Makes the folder if it is missing, for its user alone: what requests read may tell who made them.
fn create_private_folder(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::DirBuilder::new().mode(FOLDER_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        result => result,
    }
}

/// Of a log's folder: to be read and written by its user.
const FOLDER_MODE: u32 = 0o700;

/// The folder of the log, where this process writes under a number that no other living process has.
pub(crate) struct LogFolder {
    path: PathBuf,
    instance: u16,
    /// The number of the next part.
    next_part: u64,
    /// What `meta.json` counts of this process already.
    reported_dropped: u64,
    /// Locked while the process lives, so that the instance is its own.
    _lock: File,
}

impl LogFolder {
    /// Takes the lowest free number in the folder, which is made if it is missing.
    pub(crate) fn open(options: &Options) -> io::Result<Self> {
        let path = options.folder.clone();
        create_private_folder(&path)?;
        let (instance, lock) = claim_instance(&path)?;
        let mut next_part = 0;
        for entry in std::fs::read_dir(&path)? {
            let name = entry?.file_name();
            match parse_part_name(&name.to_string_lossy(), "requests") {
                Some((part_instance, part_number, _)) if part_instance == instance => {
                    next_part = next_part.max(part_number + 1);
                }
                _ => {}
            }
        }
        Ok(Self { path, instance, next_part, reported_dropped: 0, _lock: lock })
    }

    /// Writes a part, its items first: a reader takes requests only together with their items.
    fn write(&mut self, part: LogPart, dropped: u64, options: &Options) -> io::Result<u64> {
        let log_name = self.path.to_string_lossy();
        let writes = part.writes();
        let log = part.into_log(&log_name).map_err(io::Error::other)?;
        let part_number = self.next_part;
        self.next_part += 1;
        let extension = options.format.extension();
        let part_path = |stem: &str| {
            self.path.join(format!("{stem}-{}-{part_number:06}.{extension}", self.instance))
        };
        let (items_file, requests_file) = (
            TemporaryFile::create(part_path("items"))?,
            TemporaryFile::create(part_path("requests"))?,
        );
        {
            let mut items_writer = BufWriter::new(&items_file.file);
            let mut requests_writer = BufWriter::new(&requests_file.file);
            match options.format {
                FileFormat::Parquet => {
                    log.write_parquet(&mut items_writer, &mut requests_writer)?;
                }
                FileFormat::JsonLines => {
                    log.write_jsonl(&mut items_writer, &mut requests_writer)?;
                }
            }
            items_writer.flush()?;
            requests_writer.flush()?;
        }
        let written_bytes = items_file.finish()? + requests_file.finish()?;
        let newly_dropped = dropped - self.reported_dropped;
        self.reported_dropped = dropped;
        let part_counts =
            PartCounts { requests: log.requests.len(), dropped: newly_dropped, writes };
        self.update_meta(part_counts, &log.items.changed, options)?;
        Ok(written_bytes)
    }

    /// Adds to what `meta.json` counts of this instance. Other processes change other instances of the same file.
    fn update_meta(
        &self,
        part_counts: PartCounts,
        changed_keys: &BTreeSet<String>,
        options: &Options,
    ) -> io::Result<()> {
        let lock = open_lock(&self.path.join(".meta.lock"))?;
        lock.lock()?;
        let meta_path = self.path.join("meta.json");
        let content = std::fs::read(&meta_path).unwrap_or_default();
        let mut meta: Map<String, Value> = serde_json::from_slice(&content).unwrap_or_default();
        meta.insert("version".to_owned(), json!(1));
        meta.insert("sample".to_owned(), json!(options.sample));
        meta.insert("sampled_by".to_owned(), json!("request"));
        meta.insert("hashed_keys".to_owned(), json!(options.salt.is_some()));
        meta.insert("has_base_us".to_owned(), json!(options.has_base));
        if !changed_keys.is_empty() {
            let mut changed = changed_of_meta(&meta);
            changed.extend(changed_keys.iter().cloned());
            let changed = keys_and_patterns_of(changed.iter().map(String::as_str));
            meta.insert("changed".to_owned(), json!(changed));
        }
        let instances = meta.entry("instances").or_insert_with(|| json!({}));
        let previous_counts = &instances[self.instance.to_string()];
        let new_total = |name: &str, increment: u64| {
            json!(previous_counts[name].as_u64().unwrap_or(0) + increment)
        };
        let counts = json!({
            "requests": new_total("requests", part_counts.requests as u64),
            "dropped": new_total("dropped", part_counts.dropped),
            "writes": new_total("writes", part_counts.writes),
        });
        if let Some(instances) = instances.as_object_mut() {
            instances.insert(self.instance.to_string(), counts);
        }
        let file = TemporaryFile::create(meta_path)?;
        serde_json::to_writer_pretty(&file.file, &meta)?;
        file.finish().map(|_| ())
    }
}

/// What a part adds to the counts of its instance.
#[derive(Clone, Copy)]
struct PartCounts {
    requests: usize,
    dropped: u64,
    writes: u64,
}

/// The lowest number whose lock no living process holds.
fn claim_instance(folder: &Path) -> io::Result<(u16, File)> {
    for instance in 0..=u16::MAX {
        let lock = open_lock(&folder.join(format!(".instance-{instance}.lock")))?;
        match lock.try_lock() {
            Ok(()) => return Ok((instance, lock)),
            Err(std::fs::TryLockError::WouldBlock) => {}
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other("65,536 processes write into it already"))
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// A file that gets its name when it is complete, and is removed if that never happens.
struct TemporaryFile {
    file: File,
    temporary_path: PathBuf,
    path: PathBuf,
}

impl TemporaryFile {
    fn create(path: PathBuf) -> io::Result<Self> {
        let mut temporary_path = path.clone().into_os_string();
        temporary_path.push(TEMPORARY_SUFFIX);
        let temporary_path = PathBuf::from(temporary_path);
        Ok(Self { file: File::create(&temporary_path)?, temporary_path, path })
    }

    /// Gives it its name and returns its length in bytes.
    fn finish(self) -> io::Result<u64> {
        let file_bytes = self.file.metadata()?.len();
        std::fs::rename(&self.temporary_path, &self.path)?;
        Ok(file_bytes)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Under its final name nothing is found here.
        let _ = std::fs::remove_file(&self.temporary_path);
    }
}
