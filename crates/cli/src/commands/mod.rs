//! One file per subcommand; `args` lists them.

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod curve;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod slabs;
pub(crate) mod tour;
