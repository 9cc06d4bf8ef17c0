//! One file per subcommand; `args` lists them.

pub(crate) mod config;
pub(crate) mod simulate;
