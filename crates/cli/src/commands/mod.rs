//! One file per subcommand; `args` lists them. `target` is what the small ones share.

pub(crate) mod bench;
pub(crate) mod codec;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod curve;
pub(crate) mod delete;
pub(crate) mod generate;
pub(crate) mod get;
pub(crate) mod inspect;
pub(crate) mod keys;
pub(crate) mod man;
pub(crate) mod ping;
pub(crate) mod profile;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod rollout;
pub(crate) mod serve;
pub(crate) mod set;
pub(crate) mod simulate;
pub(crate) mod slabs;
pub(crate) mod stats;
pub(crate) mod tour;
pub(crate) mod warm;
pub(crate) mod web;
pub(crate) mod why;
