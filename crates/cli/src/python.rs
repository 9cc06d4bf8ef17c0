//! The Python that commands start as a child process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Environment variable with the Python to try first.
const PYTHON_VARIABLE: &str = "GLASSCACHE_PYTHON";

/// A Python that can import `module`: the named one, the one next to this binary, the active environment's, or the one
/// on the path. The error is a reason to print.
pub(crate) fn find_python_with(module: &str) -> Result<PathBuf, String> {
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

fn list_python_candidates() -> Vec<PathBuf> {
    let from_environment = std::env::var_os(PYTHON_VARIABLE).filter(|name| !name.is_empty());
    let next_to_binary = std::env::current_exe().ok();
    let next_to_binary = next_to_binary.and_then(|exe| Some(exe.parent()?.join("python3")));
    let from_virtual_env =
        std::env::var_os("VIRTUAL_ENV").map(|home| Path::new(&home).join("bin/python"));
    let candidates = [
        from_environment.map(PathBuf::from),
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
