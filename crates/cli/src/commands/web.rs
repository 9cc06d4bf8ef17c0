//! `glasscache web`: explains and purges what the HTTP cache of an application stores.
//!
//! Rules and keys are those of the Python package, so this only finds a Python and starts its module `glasscache.web`
//! with the arguments as they are: arguments, help, errors and exit codes are the module's.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use glasscache_lab::python;

use crate::output::{Exit, Failure, Output};

/// The commands of the module that print a result in JSON.
const COMMANDS: [&str; 3] = ["explain", "purge", "tag"];

/// Explain or purge what the HTTP cache of an application stores.
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct Args {
    /// Arguments of `python -m glasscache.web`; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Args {
    /// Whether JSON is requested among the arguments; help is text.
    pub(crate) fn requests_json(&self) -> bool {
        let contains = |name| self.arguments.iter().any(|argument| argument == name);
        contains("--json") && !contains("--help") && !contains("-h")
    }

    /// The words of the command in the envelope, such as `web explain`.
    pub(crate) fn command_path(&self) -> String {
        let is_named = |name: &&str| self.arguments.iter().any(|argument| argument == name);
        COMMANDS
            .iter()
            .copied()
            .find(is_named)
            .map_or("web".to_owned(), |name| format!("web {name}"))
    }

    /// Runs the Python module, whose text is printed as it is and whose JSON becomes the result.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let interpreter = python::find_python_with("glasscache.web.__main__")
            .map_err(|reason| Failure::new(Exit::Unreachable, format!("web failed: {reason}")))?;
        let mut command = Command::new(interpreter);
        command.args(["-m", "glasscache.web"]);
        command.args(self.arguments.iter().filter(|argument| *argument != "--json"));
        if !out.is_json() {
            let status = command.status().map_err(|error| web_failure(&error))?;
            return exit_from_code(status.code(), "");
        }
        let module_output = command.arg("--json").stderr(Stdio::piped()).output();
        let module_output = module_output.map_err(|error| web_failure(&error))?;
        if module_output.status.success() {
            let result = serde_json::from_slice(&module_output.stdout)
                .map_err(|error| Failure::new(Exit::BadData, format!("web failed: {error}")))?;
            out.set_result(&result);
        }
        // Of wrong arguments the usage comes first and the sentence last.
        let message = String::from_utf8_lossy(&module_output.stderr);
        exit_from_code(module_output.status.code(), message.trim().lines().last().unwrap_or(""))
    }
}

fn web_failure(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Unreachable, format!("web failed: {error}"))
}

/// The exit of the module's; a message becomes a failure that is printed here.
fn exit_from_code(code: Option<i32>, message: &str) -> Result<Exit, Failure> {
    let exit = match code {
        Some(0) => return Ok(Exit::Success),
        Some(1) => Exit::Finding,
        Some(2) => Exit::Usage,
        Some(3) => Exit::Unreachable,
        _ => Exit::BadData,
    };
    if message.is_empty() {
        return Ok(exit);
    }
    Err(Failure::new(exit, message))
}
