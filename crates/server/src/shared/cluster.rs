//! `config get cluster`: the nodes of a cluster, read from a file and reported like the endpoint of `ElastiCache`
//! does.
//!
//! Clients with discovery request the list of servers from one address. The operator maintains the file: a
//! line with a version that grows with each change, then the nodes as `name|address|port`. It is checked at each
//! request and read again when it has changed. A file that is missing or half written changes nothing: the last
//! known nodes are better than none.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use glasscache_protocol::replies;

use crate::shared::error::Error;
use crate::shared::file_version::{self, FileVersion, file_version};
use crate::shared::lock::lock;

/// The cluster's description and its file; by default there is none.
#[derive(Default)]
pub(crate) struct Cluster {
    file: Option<(PathBuf, Mutex<NodesFile>)>,
}

/// The content of the file, and the version of the file, by which a change is detected.
struct NodesFile {
    file_version: Option<FileVersion>,
    /// The cluster's version, a line end, the nodes separated by blanks, a line end.
    text: String,
}

impl Cluster {
    /// Reads the file, if there is one: a server must not start with nodes that it cannot report.
    pub(crate) fn new(path: Option<&Path>) -> Result<Cluster, Error> {
        let Some(path) = path else {
            return Ok(Cluster { file: None });
        };
        let file_version = file_version(path);
        let text = read_description(path).map_err(|error_text| {
            let display = path.display();
            Error::Setting(format!("cluster-file: {display} {error_text}"))
        })?;
        let nodes_file = Mutex::new(NodesFile { file_version, text });
        Ok(Cluster { file: Some((path.to_owned(), nodes_file)) })
    }

    /// Reads the file again, changed or not, and returns a sentence about the result.
    pub(crate) fn reload(&self) -> Result<String, String> {
        let Some((path, nodes_file)) = &self.file else {
            return Ok("nothing to read again: there is no --cluster-file".to_owned());
        };
        let display = path.display();
        let file_version = file_version(path);
        match read_description(path) {
            Ok(text) => {
                *lock(nodes_file) = NodesFile { file_version, text };
                Ok(format!("cluster-file: {display} was read again"))
            }
            Err(error_text) => {
                Err(format!("cluster-file: {display} {error_text}; the nodes stay as they were"))
            }
        }
    }

    /// Replies to the arguments of `config`; without a file the command is unknown.
    pub(crate) fn reply_to_config(&self, arguments: &[&[u8]], out: &mut Vec<u8>) {
        let Some((path, nodes_file)) = &self.file else {
            return out.extend_from_slice(replies::ERROR);
        };
        match arguments {
            [b"get", b"cluster"] => {
                let mut nodes_file = lock(nodes_file);
                nodes_file.read_if_changed(path);
                // Writing to a vector cannot fail.
                let _ = write!(
                    out,
                    "CONFIG cluster 0 {}\r\n{}\r\nEND\r\n",
                    nodes_file.text.len(),
                    nodes_file.text
                );
            }
            // There are no other keys: a miss, as of any key.
            [b"get", _] => out.extend_from_slice(replies::END),
            _ => out.extend_from_slice(replies::ERROR),
        }
    }
}

impl NodesFile {
    fn read_if_changed(&mut self, path: &Path) {
        let file_version = file_version(path);
        if file_version == self.file_version {
            return;
        }
        if let Ok(text) = read_description(path) {
            self.text = text;
            self.file_version = file_version;
        }
    }
}

fn read_description(path: &Path) -> Result<String, String> {
    let text = String::from_utf8(file_version::read_bounded(path)?);
    parse_description(&text.map_err(|error| format!("cannot be read: {error}"))?)
}

/// The description as it is sent to clients, or the error in the text.
fn parse_description(text: &str) -> Result<String, String> {
    let (version, node_lines) = text.split_once('\n').unwrap_or((text, ""));
    let version = version.trim();
    if version.parse::<u64>().is_err() {
        return Err(format!(
            "must begin with a line that is the version, a number, not {version:?}"
        ));
    }
    let nodes: Vec<&str> = node_lines.split_whitespace().collect();
    if let Some(bad_node) = nodes.iter().find(|node| !is_node(node)) {
        return Err(format!("has {bad_node:?} where name|address|port must stand"));
    }
    Ok(format!("{version}\n{}\n", nodes.join(" ")))
}

/// `name|address|port`; the address may be empty, the name must not.
fn is_node(text: &str) -> bool {
    let mut parts = text.split('|');
    let (Some(name), Some(_), Some(port), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    !name.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn nodes_are_separated_by_blanks_or_line_ends() {
        let description = "12\na.example|10.0.0.1|11211 b.example||11212\n";
        assert_eq!(parse_description(description).as_deref(), Ok(description));
        let lines = "12\r\na.example|10.0.0.1|11211\r\nb.example||11212\n\n";
        assert_eq!(parse_description(lines).as_deref(), Ok(description));
        assert_eq!(parse_description("3").as_deref(), Ok("3\n\n"));
    }

    #[test]
    fn a_node_that_clients_could_not_parse_is_refused() {
        for bad_description in [
            "",
            "a|10.0.0.1|1",
            "1\na:11211",
            "1\na|b",
            "1\na|b|0",
            "1\na|b|c",
            "1\n|b|1",
            "1\na|b|1|2",
        ] {
            assert!(parse_description(bad_description).is_err(), "{bad_description:?}");
        }
    }

    #[test]
    fn a_half_written_file_keeps_the_last_known_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes");
        let request_nodes = |cluster: &Cluster| {
            let mut out = Vec::new();
            cluster.reply_to_config(&[b"get", b"cluster"], &mut out);
            String::from_utf8(out).unwrap()
        };
        fs::write(&path, "1\na|10.0.0.1|11211\n").unwrap();
        let cluster = Cluster::new(Some(&path)).unwrap();
        let first_reply = "CONFIG cluster 0 19\r\n1\na|10.0.0.1|11211\n\r\nEND\r\n";
        assert_eq!(request_nodes(&cluster), first_reply);
        fs::write(&path, "2\na|10.0").unwrap();
        assert_eq!(request_nodes(&cluster), first_reply);
        fs::remove_file(&path).unwrap();
        assert_eq!(request_nodes(&cluster), first_reply);
        fs::write(&path, "3\nb||11211\n").unwrap();
        assert!(request_nodes(&cluster).starts_with("CONFIG cluster 0 11\r\n3\nb||11211\n\r\n"));
        fs::remove_file(&path).unwrap();
        assert!(Cluster::new(Some(&path)).is_err());
    }
}
