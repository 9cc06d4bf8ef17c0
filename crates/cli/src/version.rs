//! The version of this program.

/// The version, with the commit that the program was built from where that is known.
pub(crate) fn version_text() -> String {
    match option_env!("GLASSCACHE_COMMIT") {
        Some(commit) => format!("{}+{commit}", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}
