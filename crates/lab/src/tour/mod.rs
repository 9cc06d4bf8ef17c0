//! The tour: stores a real folder in a real server, checks every byte, and measures the cost.
//!
//! Files become items under their path in the folder. They are stored over the socket, read back one at a time, in
//! pipelines and by multi-get, each comparison over every byte. A memcached is started as a child; our server runs in
//! this process, so that its resident bytes are those by which the process grew since the folder was read.

mod folder;
mod report;
mod stage;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::bench::Error;
use crate::proc::{Meter, read_own_resident_bytes};
use crate::server_process::{ServerCommand, send_line};

pub(crate) use folder::{FILE_BYTES_MAX, FOLDER_BYTES_MAX, Folder};
use stage::{Stage, StageFigures, count_requested_keys, run_stage};

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// What a tour of one server measured.
#[derive(Debug, Clone, Serialize)]
struct TourFigures {
    /// Which server.
    pub server: String,
    /// Its reply to `version`.
    pub version: String,
    /// Items stored.
    pub items: usize,
    /// Key and value bytes of them.
    pub user_bytes: u64,
    /// Resident bytes of the server at the end.
    pub resident_bytes: u64,
    /// One entry a stage.
    pub stages: Vec<StageFigures>,
}

impl TourFigures {
    /// User bytes per resident byte.
    fn density(&self) -> f64 {
        self.user_bytes as f64 / self.resident_bytes.max(1) as f64
    }

    /// Keys that failed in any stage.
    fn failed(&self) -> u64 {
        self.stages.iter().map(|stage| stage.failed).sum()
    }
}

/// Called with the server and the stage, the keys requested so far and all of the stage.
pub type Progress<'p> = &'p (dyn Fn(&str, u64, u64) + Sync);

/// A folder in memory, and what was measured with it.
#[derive(Debug)]
pub struct Tour {
    folder: Arc<Folder>,
    /// Resident bytes of this process once it had the folder.
    resident_bytes_before: u64,
    stop: Arc<AtomicBool>,
    figures_by_server: Vec<TourFigures>,
}

impl Tour {
    /// Reads the files under `path`; those that cannot be items are skipped, and so are folders whose name is in
    /// `excluded_names`. `stop` ends what is measured.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn read(path: &Path, excluded_names: &[&str], stop: Arc<AtomicBool>) -> io::Result<Self> {
        let folder = Arc::new(Folder::read(path, excluded_names)?);
        let resident_bytes_before = read_own_resident_bytes();
        Ok(Self { folder, resident_bytes_before, stop, figures_by_server: Vec::new() })
    }

    /// Whether no file can be an item.
    pub fn is_empty(&self) -> bool {
        self.folder.items() == 0
    }

    /// What is measured, in some sentences.
    pub fn intro(&self) -> String {
        report::format_intro(&self.folder)
    }

    /// `-m` of a server: everything fits twice, so that nothing is evicted.
    pub fn memory_mib(&self) -> u64 {
        64 + 2 * self.folder.user_bytes().div_ceil(1 << 20)
    }

    /// Measures our server in this process, which was started after the folder was read.
    ///
    /// # Errors
    /// The generator failed, or was stopped.
    pub fn measure_embedded(
        &mut self,
        address: SocketAddr,
        meter: &Meter,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let version = send_line(address, "version").unwrap_or_default();
        let version = version.trim_start_matches("VERSION ").to_owned();
        let before = self.resident_bytes_before;
        let resident_bytes = || read_own_resident_bytes().saturating_sub(before);
        let server = ("glasscache", version, address);
        self.measure_stages(server, meter, &resident_bytes, progress)
    }

    /// Starts this memcached and measures it.
    ///
    /// # Errors
    /// It cannot be started; the generator failed, or was stopped.
    pub fn measure_memcached(
        &mut self,
        program: &Path,
        workers: usize,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let command = ServerCommand::memcached(program, self.memory_mib(), workers);
        let server = command.start().map_err(Error::Start)?;
        let resident_bytes = || server.read_resident_bytes();
        let name_and_version = ("memcached", server.version.clone(), server.address);
        self.measure_stages(name_and_version, &server.meter(), &resident_bytes, progress)
    }

    fn measure_stages(
        &mut self,
        (name, version, address): (&str, String, SocketAddr),
        meter: &Meter,
        read_resident_bytes: &dyn Fn() -> u64,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let (mut stages, mut resident_bytes) = (Vec::new(), 0);
        for stage in Stage::ALL {
            let label = format!("{name}: {}", stage.title());
            let keys = count_requested_keys(&self.folder, stage) as u64;
            let (keys_done, is_done) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
            let figures = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        progress(&label, keys_done.load(Ordering::Relaxed), keys);
                        std::thread::sleep(PROGRESS_INTERVAL);
                    }
                });
                let figures =
                    run_stage(&self.folder, stage, address, meter, &self.stop, &keys_done);
                is_done.store(true, Ordering::Relaxed);
                figures
            });
            stages.push(figures.map_err(Error::load(name))?);
            resident_bytes = resident_bytes.max(read_resident_bytes());
        }
        self.figures_by_server.push(TourFigures {
            server: name.to_owned(),
            version,
            items: self.folder.items(),
            user_bytes: self.folder.user_bytes(),
            resident_bytes,
            stages,
        });
        Ok(())
    }

    /// Keys that were absent or wrong at any server, and a description of the first of them.
    pub fn failed_keys(&self) -> (u64, Option<String>) {
        let figures = &self.figures_by_server;
        let mut stages = figures.iter().flat_map(|figures| &figures.stages);
        let complaint = stages.find_map(|stage| stage.complaint.clone());
        (figures.iter().map(TourFigures::failed).sum(), complaint)
    }

    /// What was measured, for a terminal.
    pub fn text(&self) -> String {
        report::format_figures(&self.figures_by_server)
    }

    /// What was measured, in JSON.
    pub fn to_document(&self) -> Value {
        let folder = &self.folder;
        json!({
            "folder": { "items": folder.items(), "user_bytes": folder.user_bytes(), "skipped": folder.skipped_files },
            "servers": self.figures_by_server,
        })
    }
}
