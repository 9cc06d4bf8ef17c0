//! What the kernel reports of a server's process: `PID/status` and `vmstat` in `/proc`, or in a prepared folder.

use std::fs;
use std::path::Path;

use glasscache_findings::Machine;

/// The folder of the kernel.
pub(super) const PROC: &str = "/proc";

/// The memory of the process `pid`; `None` where nothing is known of it.
///
/// A prepared folder may have one `status` for all. In the kernel's, `pid` may be another process: the server may have
/// process ids of its own, as in a container.
pub(super) fn read_machine(folder: &Path, pid: u32) -> Option<Machine> {
    let is_kernel_folder = folder == Path::new(PROC);
    let of_process = fs::read_to_string(folder.join(pid.to_string()).join("status")).ok();
    let status = match of_process {
        None if !is_kernel_folder => fs::read_to_string(folder.join("status")).ok(),
        status => status,
    }?;
    (!is_kernel_folder || is_cache_server(&status)).then(|| Machine::of_status(&status))
}

fn is_cache_server(status: &str) -> bool {
    let name = status.lines().find_map(|line| line.strip_prefix("Name:")).unwrap_or_default();
    ["memcached", "glasscache"].contains(&name.trim())
}

/// Pages that the machine read back from swap since its start.
pub(super) fn read_pages_swapped_in(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("vmstat")).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("pswpin "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prepared_folder_may_have_one_status_for_all() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_machine(folder.path(), 7), None);
        fs::write(folder.path().join("status"), "VmSwap: 4096 kB\n").unwrap();
        fs::write(folder.path().join("vmstat"), "pswpout 1\npswpin 12\n").unwrap();
        assert_eq!(read_machine(folder.path(), 7).unwrap().swapped_bytes, 4 << 20);
        assert_eq!(read_pages_swapped_in(folder.path()), 12);
        fs::create_dir(folder.path().join("7")).unwrap();
        fs::write(folder.path().join("7/status"), "VmSwap: 1 kB\n").unwrap();
        assert_eq!(read_machine(folder.path(), 7).unwrap().swapped_bytes, 1024);
    }

    #[test]
    fn another_process_with_the_number_is_not_taken_for_the_server() {
        assert_eq!(read_machine(Path::new(PROC), std::process::id()), None);
    }
}
