//! Ctrl-C during a computation: exit code 130, an error of that kind, and no old page replaced by a partial one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::server::glasscache;

/// Whether a process has a handler of SIGINT.
fn handles_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0
}

/// How long a command may take until it can be interrupted.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// When a command is interrupted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    /// As soon as it can be: it may still read its input.
    Begin,
    /// After 0.2 s of CPU time: it computes.
    Computation,
}

impl Moment {
    fn has_come(self, pid: u32) -> bool {
        match self {
            Moment::Begin => handles_interrupts(pid),
            Moment::Computation => read_cpu_ticks(pid) >= 20,
        }
    }
}

/// The CPU time of a process in hundredths of a second.
fn read_cpu_ticks(pid: u32) -> u64 {
    let statistics = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = statistics.rsplit(')').next().unwrap().split_whitespace();
    fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// The document of a command that is interrupted.
fn run_and_interrupt(folder: &Path, arguments: &[&str], moment: Moment) -> Value {
    let child = glasscache()
        .args(arguments)
        .args(["--threads", "1", "--json", "--html", "page.html"])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while !moment.has_come(child.id()) {
        assert!(begin.elapsed() < TIME_LIMIT, "{arguments:?}: too little to compute");
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{arguments:?} at {moment:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn generate(folder: &Path, arguments: &[&str]) {
    let generated =
        glasscache().arg("generate").args(arguments).current_dir(folder).output().unwrap();
    assert!(generated.status.success());
}

#[test]
fn an_interrupted_computation_reports_that_and_leaves_the_old_page() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("page.html"), "old").unwrap();
    // Much more than is computed before the signal arrives.
    generate(folder, &["zipf", "k.parquet", "--requests", "300000", "--size", "100"]);
    generate(folder, &["topic-tree", "site", "--requests", "60000"]);
    for arguments in [
        &["curve", "k.parquet", "--policies", "all"][..],
        &["curve", "k.parquet", "--server", "--capacities", "8m,16m,32m,64m,128m"],
        &["simulate", "site"],
        &["simulate", "site", "--search"],
    ] {
        for moment in [Moment::Begin, Moment::Computation] {
            let document = run_and_interrupt(folder, arguments, moment);
            assert_eq!(document["error"]["kind"], "interrupted", "{arguments:?}");
            let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
            assert_eq!(page, "old", "{arguments:?}");
        }
    }
}
