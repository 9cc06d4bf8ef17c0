//! The version text that `version` and `stats` report: clients compare its leading number to detect support for meta
//! commands; our own version follows it, with the commit that tells builds of one version apart.

/// What is reported of the version.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) text: String,
    /// The reply to `version`.
    pub(crate) reply: Vec<u8>,
}

impl Version {
    pub(crate) fn new(commit: Option<&str>) -> Version {
        let mut text = format!("1.6.45-glasscache-{}", env!("CARGO_PKG_VERSION"));
        if let Some(commit) = commit {
            text.push('+');
            text.push_str(commit);
        }
        let reply = format!("VERSION {text}\r\n").into_bytes();
        Version { text, reply }
    }
}
