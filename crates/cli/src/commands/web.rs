//! `glasscache web`: explains and purges what the HTTP cache of an application stores.
//!
//! Rules and keys are those of the Python package, so its module `glasscache.web` is started with the same arguments.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::{ArgGroup, Subcommand};
use glasscache_lab::python;

use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache web explain http://shop.example/lamps --rules rules.toml
  glasscache web explain http://shop.example/lamps -H 'Cookie: session=1'
  glasscache web purge --tag lamps --soft
  glasscache web tag lamps";

/// Explain or purge what the HTTP cache of an application stores.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Print which rule decides what about a URL, and what is stored
    Explain {
        /// An absolute URL
        url: String,
        /// A header field of the request
        #[arg(short = 'H', long = "header", value_name = "NAME:VALUE")]
        headers: Vec<String>,
        /// The method of the request
        #[arg(short = 'X', long, default_value = "GET")]
        method: String,
        #[command(flatten)]
        cache: CacheOptions,
    },
    /// Remove responses, or make them stale
    #[command(group(ArgGroup::new("which").required(true)))]
    Purge {
        /// The responses of an absolute URL
        #[arg(long, group = "which")]
        url: Option<String>,
        /// Each URL that begins with this, such as shop.example/lamps/
        #[arg(long, group = "which")]
        prefix: Option<String>,
        /// Each response with this tag
        #[arg(long, group = "which")]
        tag: Option<String>,
        /// Send the old responses while they are refreshed
        #[arg(long)]
        soft: bool,
        #[command(flatten)]
        cache: CacheOptions,
    },
    /// List the URLs that are stored with a tag
    Tag {
        /// The tag
        tag: String,
        /// Look at this many keys at most
        #[arg(long, value_name = "NUM", default_value_t = 1_000_000)]
        keys_max: u64,
        /// Print this many URLs at most
        #[arg(long, value_name = "NUM", default_value_t = 10_000)]
        limit: u64,
        #[command(flatten)]
        cache: CacheOptions,
    },
}

/// Which cache: as the middleware of the application has it.
#[derive(clap::Args)]
struct CacheOptions {
    /// Address of a cache server; write one option for each
    #[arg(short, long = "server", value_name = "ADDR", default_value = "127.0.0.1:11211")]
    servers: Vec<String>,
    /// The rules of the middleware, a TOML file
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// The namespace in the settings of the middleware
    #[arg(long, default_value = "web")]
    namespace: String,
    /// The version in the settings of the middleware
    #[arg(long, default_value = "", hide_default_value = true)]
    site_version: String,
}

impl Args {
    /// Runs the Python module, whose text is printed as it is and whose JSON becomes the result.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let interpreter = python::find_python_with("glasscache.web.__main__")
            .map_err(|reason| Failure::new(Exit::Unreachable, format!("web failed: {reason}")))?;
        let mut command = Command::new(interpreter);
        command.args(["-m", "glasscache.web"]).args(self.action.into_arguments());
        if !out.is_json() {
            let status = command.status().map_err(|error| web_failure(&error))?;
            return exit_from_code(status.code(), "");
        }
        let module_output = command.arg("--json").stderr(Stdio::piped()).output();
        let module_output = module_output.map_err(|error| web_failure(&error))?;
        let message = String::from_utf8_lossy(&module_output.stderr);
        if module_output.status.success() {
            let result = serde_json::from_slice(&module_output.stdout)
                .map_err(|error| Failure::new(Exit::BadData, format!("web failed: {error}")))?;
            out.set_result(&result);
        }
        exit_from_code(module_output.status.code(), message.trim())
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

impl Action {
    /// The arguments of the Python module.
    fn into_arguments(self) -> Vec<String> {
        let format_option =
            |name: &str, value: Option<String>| value.map(|value| format!("--{name}={value}"));
        let (mut arguments, cache) = match self {
            Self::Explain { url, headers, method, cache } => {
                let header_options = headers.into_iter().map(|header| format!("--header={header}"));
                let required_arguments = ["explain".to_owned(), format!("--method={method}"), url];
                (required_arguments.into_iter().chain(header_options).collect::<Vec<_>>(), cache)
            }
            Self::Purge { url, prefix, tag, soft, cache } => {
                let filter_options = [
                    format_option("url", url),
                    format_option("prefix", prefix),
                    format_option("tag", tag),
                ];
                let soft_option = soft.then(|| "--soft".to_owned());
                let options = filter_options.into_iter().chain([soft_option]).flatten();
                (["purge".to_owned()].into_iter().chain(options).collect(), cache)
            }
            Self::Tag { tag, keys_max, limit, cache } => {
                let limits = [format!("--keys-max={keys_max}"), format!("--limit={limit}")];
                (["tag".to_owned(), tag].into_iter().chain(limits).collect(), cache)
            }
        };
        arguments.extend(cache.servers.into_iter().map(|server| format!("--server={server}")));
        arguments.extend(cache.rules.map(|rules| format!("--rules={}", rules.display())));
        arguments.push(format!("--namespace={}", cache.namespace));
        arguments.push(format!("--version={}", cache.site_version));
        arguments
    }
}
