//! Whether the machine, or the cgroup of the process, has the memory that a server may use.

use std::fs;
use std::path::{Path, PathBuf};

/// What a full server takes beside `-m`: a part of it, and a part that does not depend on it.
const OVERHEAD_DIVISOR: u64 = 50;
const OVERHEAD_BYTES: u64 = 16 << 20;

/// A sentence if the kernel would kill the server once it is full.
pub(super) fn warn_about_memory(memory_bytes: u64) -> Option<String> {
    let needed_bytes = memory_bytes + memory_bytes / OVERHEAD_DIVISOR + OVERHEAD_BYTES;
    let machine_bytes =
        fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_total(&text))?;
    let (limit_bytes, owner) = match find_group_limit() {
        Some(group_bytes) if group_bytes < machine_bytes => {
            (group_bytes, "the cgroup of this process")
        }
        _ => (machine_bytes, "this machine"),
    };
    (needed_bytes > limit_bytes).then(|| {
        format!(
            "memory-limit (-m): a full server takes {} MB and {owner} has {} MB: the kernel will kill it when it fills; write -m {} or less",
            needed_bytes >> 20,
            limit_bytes >> 20,
            (limit_bytes.saturating_sub(OVERHEAD_BYTES) / (OVERHEAD_DIVISOR + 1) * OVERHEAD_DIVISOR) >> 20
        )
    })
}

/// The memory of the machine in bytes.
fn parse_total(meminfo: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The smallest memory limit of the process's cgroups, of version 2 or 1.
fn find_group_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    find_smallest_limit(&groups, Path::new("/sys/fs/cgroup"))
}

fn find_smallest_limit(groups: &str, mount: &Path) -> Option<u64> {
    let parse_line = |line: &str| -> Option<(PathBuf, &'static str, PathBuf)> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/').into();
        match controllers {
            "" => Some((mount.to_owned(), "memory.max", path)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((mount.join("memory"), "memory.limit_in_bytes", path))
            }
            _ => None,
        }
    };
    let limits_of = |(root, file, path): (PathBuf, &'static str, PathBuf)| -> Option<u64> {
        let read_limit = |folder: &Path| -> Option<u64> {
            fs::read_to_string(root.join(folder).join(file)).ok()?.trim().parse().ok()
        };
        path.ancestors().filter_map(read_limit).min()
    };
    groups.lines().filter_map(parse_line).filter_map(limits_of).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_of_a_group_and_its_parents_counts() {
        let mount = tempfile::tempdir().unwrap();
        let write = |folder: &str, file: &str, text: &str| {
            let folder = mount.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), text).unwrap();
        };
        write("a", "memory.max", "209715200\n");
        write("a/b", "memory.max", "max\n");
        write("memory/c", "memory.limit_in_bytes", "104857600\n");
        write("memory", "memory.limit_in_bytes", "9223372036854771712\n");
        for (groups, expected) in [
            ("0::/a/b\n", Some(209_715_200)),
            ("0::/\n", None),
            ("7:cpu,cpuacct:/c\n4:memory:/c\n", Some(104_857_600)),
            ("4:memory:/gone\n", Some(9_223_372_036_854_771_712)),
            ("", None),
            ("nonsense", None),
        ] {
            assert_eq!(find_smallest_limit(groups, mount.path()), expected, "{groups}");
        }
    }

    #[test]
    fn more_memory_than_the_machine_has_is_named() {
        assert_eq!(warn_about_memory(64 << 20), None);
        let warning = warn_about_memory(1 << 50).unwrap();
        assert!(warning.contains("will kill it when it fills"), "{warning}");
    }
}
