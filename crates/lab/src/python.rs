//! The Python that commands start as a child process, and a program in it that replies to requests.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

/// Environment variable with the Python to try first.
const PYTHON_VARIABLE: &str = "GLASSCACHE_PYTHON";

/// A Python that can import `module`: the named one, the one next to this binary, the active environment's, or the one
/// on the path. The error is a reason to print.
pub fn find_python_with(module: &str) -> Result<PathBuf, String> {
    let candidates = list_python_candidates();
    let imports = |python: &&PathBuf| can_run(python, &format!("import {module}"));
    if let Some(python) = candidates.iter().find(imports) {
        return Ok(python.clone());
    }
    Err(if find_any_python().is_some() {
        "python3 has no module glasscache: `pip install .` installs it, `make py` builds it here"
    } else {
        "python3 was not found; install it, or set GLASSCACHE_PYTHON to its path"
    }
    .to_owned())
}

/// The first of the same candidates that starts.
pub(crate) fn find_any_python() -> Option<PathBuf> {
    list_python_candidates().into_iter().find(|python| can_run(python, "pass"))
}

/// The Python of the environment variable, or the one on the path, whether or not it starts.
pub(crate) fn named_python() -> PathBuf {
    find_named_python().unwrap_or_else(|| "python3".into())
}

fn find_named_python() -> Option<PathBuf> {
    std::env::var_os(PYTHON_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// A Python child process whose program replies to each request, a line of JSON, with a line of JSON; bytes may follow
/// either. Dropping it kills the process.
pub(crate) struct PythonWorker {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl PythonWorker {
    /// Starts `program` with these arguments; the error is a reason to print.
    pub(crate) fn start(
        interpreter: &Path,
        program: &str,
        arguments: &[&str],
    ) -> Result<Self, String> {
        let mut child = Command::new(interpreter)
            .args(["-c", program])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} could not be started: {error}", interpreter.display()))?;
        let (Some(requests), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("python3 has no pipes".to_owned());
        };
        Ok(Self { child, requests, replies: BufReader::new(replies) })
    }

    /// Sends a request with its bodies and returns the reply; the error is a reason to print.
    pub(crate) fn request<'b>(
        &mut self,
        request: &Value,
        bodies: impl IntoIterator<Item = &'b [u8]>,
    ) -> Result<Value, String> {
        // A child that has ended may have written its reason before.
        let _ = self.send(request, bodies);
        let mut line = String::new();
        let read_result = self.replies.read_line(&mut line);
        let reply = read_result.and_then(|_| Ok(serde_json::from_str(&line)?));
        reply.map_err(|error| format_early_end(&error))
    }

    fn send<'b>(
        &mut self,
        request: &Value,
        bodies: impl IntoIterator<Item = &'b [u8]>,
    ) -> io::Result<()> {
        writeln!(self.requests, "{request}")?;
        bodies.into_iter().try_for_each(|body| self.requests.write_all(body))?;
        self.requests.flush()
    }

    /// Reads a body of this many bytes behind a reply.
    pub(crate) fn read_body(&mut self, length: usize) -> Result<Vec<u8>, String> {
        let mut body = vec![0; length];
        self.replies.read_exact(&mut body).map_err(|error| format_early_end(&error))?;
        Ok(body)
    }
}

/// The reason if a child ended before its reply, or sent something else.
pub(crate) fn format_early_end(error: &dyn std::fmt::Display) -> String {
    format!("python3 ended early: {error}")
}

impl Drop for PythonWorker {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

fn list_python_candidates() -> Vec<PathBuf> {
    let next_to_binary = std::env::current_exe().ok();
    let next_to_binary = next_to_binary.and_then(|exe| Some(exe.parent()?.join("python3")));
    let from_virtual_env =
        std::env::var_os("VIRTUAL_ENV").map(|home| Path::new(&home).join("bin/python"));
    let candidates = [
        find_named_python(),
        next_to_binary.filter(|python| python.is_file()),
        from_virtual_env,
        Some(PathBuf::from("python3")),
    ];
    candidates.into_iter().flatten().collect()
}

fn can_run(python: &Path, program: &str) -> bool {
    let mut probe = Command::new(python);
    probe.args(["-c", program]);
    probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}
