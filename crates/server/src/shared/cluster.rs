//! `config get cluster`: the nodes of a cluster, told from a file as the endpoint of `ElastiCache` tells them.
//!
//! Clients with discovery ask one address which servers there are. Whoever runs the fleet keeps the
//! file: a line with a version that grows with each change, then the nodes as `name|address|port`.
//! It is looked at when somebody asks and read again when it has changed. A file that is gone or
//! half written changes nothing: the nodes last known are a better answer than none.

use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use glasscache_protocol::replies;

use crate::shared::error::Error;
use crate::shared::lock::lock;

/// Bound of the file; a node takes about a hundred bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The cluster's description and where it comes from; by default there is none.
#[derive(Default)]
pub(crate) struct Cluster {
    file: Option<(PathBuf, Mutex<Known>)>,
}

/// What the file said, and by what it is seen to have changed since.
struct Known {
    stamp: Option<Stamp>,
    /// The version, a line end, the nodes with blanks between, a line end.
    text: String,
}

/// Modification time to the nanosecond, length and number of a file.
type Stamp = (i64, i64, u64, u64);

impl Cluster {
    /// Reads the file, if there is one: a server must not start with nodes that it cannot tell.
    pub(crate) fn new(file: Option<&Path>) -> Result<Cluster, Error> {
        let Some(path) = file else {
            return Ok(Cluster { file: None });
        };
        let stamp = stamp(path);
        let text = read(path).map_err(|why| {
            let shown = path.display();
            Error::Setting(format!("cluster-file: {shown} {why}"))
        })?;
        let known = Mutex::new(Known { stamp, text });
        Ok(Cluster {
            file: Some((path.to_owned(), known)),
        })
    }

    /// Reads the file again, changed or not, and returns a sentence about it.
    pub(crate) fn reload(&self) -> String {
        let Some((path, known)) = &self.file else {
            return "nothing to read again: there is no --cluster-file".to_owned();
        };
        let shown = path.display();
        let stamp = stamp(path);
        match read(path) {
            Ok(text) => {
                *lock(known) = Known { stamp, text };
                format!("cluster-file: {shown} was read again")
            }
            Err(why) => format!("cluster-file: {shown} {why}; the nodes stay as they were"),
        }
    }

    /// Answers the words behind `config`; without a file the command is not known.
    pub(crate) fn command(&self, line: &[&[u8]], out: &mut Vec<u8>) {
        let Some((path, known)) = &self.file else {
            return out.extend_from_slice(replies::ERROR);
        };
        match line {
            [b"get", b"cluster"] => {
                let mut known = lock(known);
                known.refresh(path);
                // Writing to a vector cannot fail.
                let _ = write!(
                    out,
                    "CONFIG cluster 0 {}\r\n{}\r\nEND\r\n",
                    known.text.len(),
                    known.text
                );
            }
            // Other keys are kept nowhere: a miss, as of any key.
            [b"get", _] => out.extend_from_slice(replies::END),
            _ => out.extend_from_slice(replies::ERROR),
        }
    }
}

impl Known {
    fn refresh(&mut self, path: &Path) {
        let stamp = stamp(path);
        if stamp == self.stamp {
            return;
        }
        if let Ok(text) = read(path) {
            self.text = text;
            self.stamp = stamp;
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    Some((file.mtime(), file.mtime_nsec(), file.len(), file.ino()))
}

fn read(path: &Path) -> Result<String, String> {
    let file = fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {FILE_BYTES_MAX} bytes"));
    }
    describe(&text)
}

/// The description as it goes to clients, or what is wrong with the text.
fn describe(text: &str) -> Result<String, String> {
    let (version, nodes) = text.split_once('\n').unwrap_or((text, ""));
    let version = version.trim();
    if version.parse::<u64>().is_err() {
        return Err(format!(
            "must begin with a line that is the version, a number, not {version:?}"
        ));
    }
    let nodes: Vec<&str> = nodes.split_whitespace().collect();
    if let Some(wrong) = nodes.iter().find(|node| !is_node(node)) {
        return Err(format!("has {wrong:?} where name|address|port must stand"));
    }
    Ok(format!("{version}\n{}\n", nodes.join(" ")))
}

/// `name|address|port`; the address may be missing, the name must stand.
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
    use super::*;

    #[test]
    fn nodes_on_lines_or_beside_each_other_are_the_same() {
        let told = "12\na.example|10.0.0.1|11211 b.example||11212\n";
        assert_eq!(describe(told).as_deref(), Ok(told));
        let lines = "12\r\na.example|10.0.0.1|11211\r\nb.example||11212\n\n";
        assert_eq!(describe(lines).as_deref(), Ok(told));
        assert_eq!(describe("3").as_deref(), Ok("3\n\n"));
    }

    #[test]
    fn what_a_client_could_not_read_is_refused() {
        for wrong in [
            "",
            "a|10.0.0.1|1",
            "1\na:11211",
            "1\na|b",
            "1\na|b|0",
            "1\na|b|c",
            "1\n|b|1",
            "1\na|b|1|2",
        ] {
            assert!(describe(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_half_written_leaves_the_nodes_last_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes");
        let ask = |cluster: &Cluster| {
            let mut out = Vec::new();
            cluster.command(&[b"get", b"cluster"], &mut out);
            String::from_utf8(out).unwrap()
        };
        fs::write(&path, "1\na|10.0.0.1|11211\n").unwrap();
        let cluster = Cluster::new(Some(&path)).unwrap();
        let first = "CONFIG cluster 0 19\r\n1\na|10.0.0.1|11211\n\r\nEND\r\n";
        assert_eq!(ask(&cluster), first);
        fs::write(&path, "2\na|10.0").unwrap();
        assert_eq!(ask(&cluster), first);
        fs::remove_file(&path).unwrap();
        assert_eq!(ask(&cluster), first);
        fs::write(&path, "3\nb||11211\n").unwrap();
        assert!(ask(&cluster).starts_with("CONFIG cluster 0 11\r\n3\nb||11211\n\r\n"));
        fs::remove_file(&path).unwrap();
        assert!(Cluster::new(Some(&path)).is_err());
    }
}
