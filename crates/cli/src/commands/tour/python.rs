//! The Python part of the tour: the same folder through `glasscache.Client`, and where the time of a call was spent.
//!
//! The package's module `glasscache.tour` does the work and prints JSON; this file finds a Python that has it, waits
//! for it and prints its table. Without one the tour prints the reason and is otherwise complete.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use glasscache_client::costs::PARTS;
use glasscache_lab::python::find_python_with;
use glasscache_lab::text::{Table, format_bytes, format_count, format_decimal, wrap};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::output::{Failure, Output};

/// Time limit: the whole tour should take at most a minute or two.
const TIME_MAX: Duration = Duration::from_mins(1);

/// The results of the Python client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PythonTour {
    files: u64,
    bytes: u64,
    wire_bytes: u64,
    #[serde(rename = "wrong")]
    pub(super) wrong_values: u64,
    #[serde(rename = "seconds")]
    seconds_by_stage: Map<String, Value>,
    by_size: Vec<CallClass>,
    by_width: Vec<CallClass>,
}

/// One class of calls, as `client.stats()` has it.
#[derive(Debug, Serialize, Deserialize)]
struct CallClass {
    #[serde(default)]
    operation: String,
    #[serde(default)]
    bytes_from: u64,
    #[serde(default)]
    keys_from: u64,
    calls: u64,
    bytes: u64,
    /// In the order of a write and then a read.
    #[serde(rename = "seconds")]
    seconds_by_part: Map<String, Value>,
}

/// Runs the tour with the Python client, or returns the reason why it cannot.
pub(super) fn run(
    folder: &Path,
    server: SocketAddr,
    stop: &AtomicBool,
) -> Result<PythonTour, String> {
    let interpreter = find_python_with("glasscache.tour")?;
    let mut child = Command::new(&interpreter)
        .args(["-m", "glasscache.tour"])
        .arg(folder)
        .arg(server.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{} could not be started: {error}", interpreter.display()))?;
    let text = wait_for_output(&mut child, stop)?;
    serde_json::from_str(&text)
        .map_err(|_| format!("{} -m glasscache.tour failed", interpreter.display()))
}

/// The output of a child process, if it exits successfully and in time.
fn wait_for_output(child: &mut Child, stop: &AtomicBool) -> Result<String, String> {
    let mut pipe = child.stdout.take().ok_or("it has no output")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).map(|_| text)
    });
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if !stop.load(Ordering::Relaxed) && started.elapsed() < TIME_MAX => {
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => {
                let _ = child.kill(); // it may have ended by itself just now
                let _ = child.wait();
                return Err("it was stopped before its end".to_owned());
            }
        }
    }
    match reader.join() {
        Ok(Ok(text)) => Ok(text),
        _ => Err("its output could not be read".to_owned()),
    }
}

/// Prints the results, or the reason why there are none.
pub(super) fn print(out: &Output, tour_result: &Result<PythonTour, String>) -> Result<(), Failure> {
    out.print_line("")?;
    let tour = match tour_result {
        Ok(tour) => tour,
        Err(reason) => {
            let text = format!("The Python client was left out: {reason}.");
            return out.print_line(wrap(&text));
        }
    };
    out.print_line(wrap(&format!(
        "The same folder through Python's Client: {} files, {} as values, {} on the wire.",
        format_count(tour.files),
        format_bytes(tour.bytes),
        format_bytes(tour.wire_bytes)
    )))?;
    let times: Vec<String> = tour
        .seconds_by_stage
        .iter()
        .map(|(stage_name, seconds)| {
            format!("{stage_name} {} s", format_decimal(seconds.as_f64().unwrap_or(0.0)))
        })
        .collect();
    out.print_line(wrap(&times.join(", ")))?;
    out.print_line("")?;
    let part_names = PARTS.map(|(_, name)| name);
    let first_titles = ["", "", "calls", "us a call"];
    let mut table = Table::new(&[first_titles.as_slice(), part_names.as_slice()].concat());
    for call_class in tour.by_size.iter().filter(|call_class| call_class.calls > 0) {
        let size = format!("from {}", format_bytes(call_class.bytes_from));
        table.push_row(format_cells(call_class, &call_class.operation, size, &part_names));
    }
    for call_class in tour.by_width.iter().filter(|call_class| call_class.calls > 0) {
        let width = format!("from {} keys", format_count(call_class.keys_from));
        table.push_row(format_cells(call_class, "bulk", width, &part_names));
    }
    out.print_line(table.to_string())?;
    out.print_line(wrap(
        "The columns after `us a call` are its parts. Time that a call spends in Python outside of them is not counted.",
    ))
}

fn format_cells(
    call_class: &CallClass,
    operation: &str,
    class_name: String,
    part_names: &[&str],
) -> Vec<String> {
    let format_us = |seconds: f64| format_decimal(seconds * 1e6 / call_class.calls.max(1) as f64);
    let part_seconds =
        |name: &&str| call_class.seconds_by_part.get(*name).and_then(Value::as_f64).unwrap_or(0.0);
    let total_seconds: f64 = part_names.iter().map(part_seconds).sum();
    let first_cells = [
        operation.to_owned(),
        class_name,
        format_count(call_class.calls),
        format_us(total_seconds),
    ];
    let part_times = part_names.iter().map(|name| format_us(part_seconds(name)));
    first_cells.into_iter().chain(part_times).collect()
}
