//! The program `figures`: measures what only the developers of this project need (`make bench`).
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    glasscache_lab::figures::main()
}
