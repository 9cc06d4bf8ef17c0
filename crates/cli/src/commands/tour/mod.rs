//! `glasscache tour`: a real folder through a server started here, and what each step cost.
//!
//! The lab measures; this module starts the server in this process (and memcached as a child), passes its address and
//! thread ids, and prints. Resident bytes of the embedded server are the growth of this process since before the
//! start, when the folder was already in memory. If there is a Python with our package, the tour is repeated with its
//! client, which reports where the time of a call was spent.

mod python;
mod table;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use glasscache_lab::load::Error as LoadError;
use glasscache_lab::proc::{Meter, read_own_resident_bytes};
use glasscache_lab::server_process::{ServerCommand, find_memcached, send_line};
use glasscache_lab::tour::{Folder, Stage, TourFigures, count_requested_keys, run_stage};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::embedded::EmbeddedServer;
use crate::interrupts::new_stop_flag;
use crate::output::{Exit, Failure, Output};
use table::stage_title;

const EXAMPLES: &str = "\
Examples:
  glasscache tour                        the sources of Python's standard library
  glasscache tour ~/photos --vs          beside the memcached on the path
  glasscache tour . --memcached ./memcached -t 2 --json";

/// Store a folder in a temporary server, read it back and measure the cost.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The folder to store [default: the sources of Python's standard library].
    #[arg(id = "folder", value_name = "FOLDER")]
    folder_path: Option<PathBuf>,
    /// Compare with the memcached on the path.
    #[arg(long)]
    vs: bool,
    /// Compare with this memcached.
    #[arg(long, value_name = "PROGRAM")]
    memcached: Option<PathBuf>,
    /// Worker threads of each server [default: one a core, at most 4].
    #[arg(short = 't', long)]
    threads: Option<usize>,
}

/// Folders below the standard library that do not belong to it.
const EXCLUDED_FOLDERS: [&str; 3] = ["site-packages", "dist-packages", "__pycache__"];

/// A server under measurement.
struct ServerUnderTest {
    name: &'static str,
    version: String,
    address: SocketAddr,
    meter: Meter,
}

impl Args {
    /// Runs the tour and prints its table.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let memcached = self.find_memcached_program()?;
        let stop = new_stop_flag()?;
        let excluded: &[&str] = if self.folder_path.is_some() { &[] } else { &EXCLUDED_FOLDERS };
        let path = self.folder_path.clone().unwrap_or_else(find_default_folder);
        let folder = Folder::read(&path, excluded).map_err(|error| {
            Failure::new(Exit::Unreachable, format!("cannot read {}: {error}", path.display()))
        })?;
        if folder.items() == 0 {
            return Err(Failure::usage(format!("no file under {} can be an item", path.display())));
        }
        let folder = Arc::new(folder);
        if !out.is_json() {
            table::print_intro(out, &folder)?;
        }
        let (ours, python_result) = self.measure_ours(&folder, &stop)?;
        let mut figures_by_server = vec![ours];
        if let Some(program) = &memcached {
            figures_by_server.push(self.measure_theirs(program, &folder, &stop)?);
        }
        if out.is_json() {
            out.set_result(
                &json!({ "folder": { "items": folder.items(), "user_bytes": folder.user_bytes(),
                "skipped": folder.skipped_files }, "servers": figures_by_server, "python": python_result.as_ref().ok() }),
            );
        } else {
            table::print(out, &figures_by_server)?;
            python::print(out, &python_result)?;
        }
        let python_wrong_values = python_result.map_or(0, |tour| tour.wrong_values);
        let failed_keys =
            python_wrong_values + figures_by_server.iter().map(TourFigures::failed).sum::<u64>();
        if failed_keys > 0 {
            let complaint = figures_by_server
                .iter()
                .flat_map(|server| &server.stages)
                .find_map(|stage| stage.complaint.clone());
            let failure =
                Failure::new(Exit::Finding, format!("{failed_keys} keys were absent or wrong"));
            return Err(match complaint {
                Some(complaint) => failure.with_hint(complaint),
                None => failure,
            });
        }
        Ok(Exit::Success)
    }

    /// The memcached to compare with, if requested; located before anything is measured.
    fn find_memcached_program(&self) -> Result<Option<PathBuf>, Failure> {
        match &self.memcached {
            Some(program) if program.is_file() => Ok(Some(program.clone())),
            Some(program) => Err(Failure::new(
                Exit::Unreachable,
                format!("--memcached {}: not a file", program.display()),
            )),
            None if self.vs => find_memcached().map(Some).ok_or_else(|| {
                Failure::new(Exit::Unreachable, "no memcached is on the path")
                    .with_hint("--memcached takes the path of one")
            }),
            None => Ok(None),
        }
    }

    fn workers(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or(cores.min(4)).max(1)
    }

    /// Our server's figures, and those of the Python client or the reason why there are none.
    fn measure_ours(
        &self,
        folder: &Arc<Folder>,
        stop: &Arc<AtomicBool>,
    ) -> Result<(TourFigures, Result<python::PythonTour, String>), Failure> {
        let resident_before = read_own_resident_bytes();
        let EmbeddedServer { running, address, meter } =
            EmbeddedServer::start(memory_mib(folder) << 20, self.workers())?;
        let server_under_test = ServerUnderTest {
            name: "glasscache",
            version: request_version(address),
            address,
            meter,
        };
        let figures = run_stages(folder, &server_under_test, stop, || {
            read_own_resident_bytes().saturating_sub(resident_before)
        });
        let python_result = python::run(&folder.path, address, stop);
        running.stop();
        running.join();
        Ok((figures?, python_result))
    }

    fn measure_theirs(
        &self,
        program: &Path,
        folder: &Arc<Folder>,
        stop: &Arc<AtomicBool>,
    ) -> Result<TourFigures, Failure> {
        let server = ServerCommand::memcached(program, memory_mib(folder), self.workers())
            .start()
            .map_err(|error| Failure::new(Exit::Unreachable, error.to_string()))?;
        let server_under_test = ServerUnderTest {
            name: "memcached",
            version: server.version.clone(),
            address: server.address,
            meter: server.meter(),
        };
        run_stages(folder, &server_under_test, stop, || server.read_resident_bytes())
    }
}

/// Runs all stages against a server.
fn run_stages(
    folder: &Arc<Folder>,
    server_under_test: &ServerUnderTest,
    stop: &Arc<AtomicBool>,
    read_resident_bytes: impl Fn() -> u64,
) -> Result<TourFigures, Failure> {
    let mut stages = Vec::new();
    let mut resident_bytes_max = 0;
    for stage in Stage::ALL {
        let progress = Arc::new(AtomicU64::new(0));
        let bar = new_stage_bar(
            server_under_test.name,
            stage,
            count_requested_keys(folder, stage) as u64,
        );
        let is_done = AtomicBool::new(false);
        let stage_result = std::thread::scope(|scope| {
            let (bar, is_done, progress) = (&bar, &is_done, &progress);
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    bar.set_position(progress.load(Ordering::Relaxed));
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            let stage_result = run_stage(
                folder,
                stage,
                server_under_test.address,
                &server_under_test.meter,
                stop,
                progress,
            );
            is_done.store(true, Ordering::Relaxed);
            stage_result
        });
        bar.finish_and_clear();
        stages.push(stage_result.map_err(|error| match error {
            LoadError::Stopped => {
                Failure::new(Exit::Interrupted, "stopped; nothing is left behind")
            }
            error => Failure::new(Exit::BadData, format!("{}: {error}", server_under_test.name)),
        })?);
        resident_bytes_max = resident_bytes_max.max(read_resident_bytes());
    }
    Ok(TourFigures {
        server: server_under_test.name.to_owned(),
        version: server_under_test.version.clone(),
        items: folder.items(),
        user_bytes: folder.user_bytes(),
        resident_bytes: resident_bytes_max,
        stages,
    })
}

fn new_stage_bar(server: &str, stage: Stage, keys: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("  {msg:32} {bar:36} {percent:>3} %  {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─");
    ProgressBar::new(keys)
        .with_style(style)
        .with_message(format!("{server}: {}", stage_title(stage)))
}

/// `-m` of both servers: everything fits twice, so that nothing is evicted.
fn memory_mib(folder: &Folder) -> u64 {
    64 + 2 * folder.user_bytes().div_ceil(1 << 20)
}

fn request_version(address: SocketAddr) -> String {
    let reply = send_line(address, "version").unwrap_or_default();
    reply.trim_start_matches("VERSION ").to_owned()
}

/// The sources of Python's standard library, else the system's headers, else the working directory.
fn find_default_folder() -> PathBuf {
    let script = "import sysconfig; print(sysconfig.get_path('stdlib'))";
    let output = Command::new("python3").args(["-c", script]).output().ok();
    let library = output
        .filter(|output| output.status.success())
        .map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    [library, Some(PathBuf::from("/usr/include"))]
        .into_iter()
        .flatten()
        .find(|folder| folder.is_dir())
        .unwrap_or_else(|| PathBuf::from("."))
}
