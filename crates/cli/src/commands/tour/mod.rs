//! `glasscache tour`: a real folder through a server started here, and what each step cost.
//!
//! The lab measures; this module starts the server in this process, passes its address and thread ids, and prints. If
//! there is a Python with our package, the tour is repeated with its client, which reports where the time of a call was
//! spent.

mod python;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use glasscache_lab::bench::Error;
use glasscache_lab::server_process::find_memcached;
use glasscache_lab::tour::Tour;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::embedded::EmbeddedServer;
use crate::interrupts::new_stop_flag;
use crate::output::{Exit, Failure, Output};
use python::PythonTour;

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

impl Args {
    /// Runs the tour and prints its table.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let memcached = self.find_memcached_program()?;
        let stop = new_stop_flag()?;
        let excluded: &[&str] = if self.folder_path.is_some() { &[] } else { &EXCLUDED_FOLDERS };
        let path = self.folder_path.clone().unwrap_or_else(find_default_folder);
        let mut tour = Tour::read(&path, excluded, stop.clone()).map_err(|error| {
            Failure::new(Exit::Unreachable, format!("cannot read {}: {error}", path.display()))
        })?;
        if tour.is_empty() {
            return Err(Failure::usage(format!("no file under {} can be an item", path.display())));
        }
        if !out.is_json() {
            out.print_line(tour.intro())?;
            out.print_line("")?;
        }
        let bar = new_bar();
        let python_result = self.measure_ours(&mut tour, &path, &stop, &bar)?;
        if let Some(program) = &memcached {
            let progress = progress_of(&bar);
            tour.measure_memcached(program, self.workers(), &progress).map_err(failure)?;
            bar.finish_and_clear();
        }
        if out.is_json() {
            let mut document = tour.to_document();
            document["python"] = json!(python_result.as_ref().ok());
            out.set_result(&document);
        } else {
            out.print_line(tour.text())?;
            python::print(out, &python_result)?;
        }
        let python_wrong_values = python_result.map_or(0, |tour| tour.wrong_values);
        let (server_failed_keys, complaint) = tour.failed_keys();
        let failed_keys = python_wrong_values + server_failed_keys;
        if failed_keys > 0 {
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

    /// Measures our server; the results of the Python client, or the reason why there are none.
    fn measure_ours(
        &self,
        tour: &mut Tour,
        path: &Path,
        stop: &Arc<AtomicBool>,
        bar: &ProgressBar,
    ) -> Result<Result<PythonTour, String>, Failure> {
        let EmbeddedServer { running, address, meter } =
            EmbeddedServer::start(tour.memory_mib() << 20, self.workers())?;
        let outcome = tour.measure_embedded(address, &meter, &progress_of(bar));
        bar.finish_and_clear();
        let python_result = python::run(path, address, stop);
        running.stop();
        running.join();
        outcome.map_err(failure)?;
        Ok(python_result)
    }
}

/// Sets the bar to the stage and the keys that were requested.
fn progress_of(bar: &ProgressBar) -> impl Fn(&str, u64, u64) + Sync {
    move |stage, keys_done, keys| {
        if bar.length() != Some(keys) || bar.message() != stage {
            bar.reset();
            bar.set_length(keys);
            bar.set_message(stage.to_owned());
        }
        bar.set_position(keys_done);
    }
}

fn new_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("  {msg:32} {bar:36} {percent:>3} %  {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─");
    ProgressBar::new(1).with_style(style)
}

fn failure(error: Error) -> Failure {
    match error {
        error if error.is_stop() => {
            Failure::new(Exit::Interrupted, "stopped; nothing is left behind")
        }
        Error::Start(error) => Failure::new(Exit::Unreachable, error.to_string()),
        error => Failure::new(Exit::BadData, error.to_string()),
    }
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
