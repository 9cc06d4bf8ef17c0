//! The version text that `version` and `stats` report: clients compare its leading number to detect support for meta
//! commands; our own version follows it.

macro_rules! version {
    () => {
        concat!("1.6.45-glasscache-", env!("CARGO_PKG_VERSION"))
    };
}

/// The version.
pub(crate) const VERSION: &str = version!();

/// The reply to `version`.
pub(crate) const VERSION_REPLY: &[u8] = concat!("VERSION ", version!(), "\r\n").as_bytes();
