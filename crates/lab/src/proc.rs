//! Measurements from the kernel: CPU time of the server's threads and of all other processes, and resident memory.
//!
//! CPU comes from the threads' `schedstat` (nanoseconds on a CPU), split into user and kernel by the ticks of `stat`.
//! CPU time of other processes is "others": above 0.2 core a round is disturbed.

use std::fs;
use std::path::PathBuf;

use rustix::param::clock_ticks_per_second;

/// CPU seconds of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct CpuUsage {
    /// In user mode.
    pub(crate) user_s: f64,
    /// In the kernel.
    pub(crate) kernel_s: f64,
}

impl CpuUsage {
    /// Both together.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.user_s + self.kernel_s
    }
}

/// The threads whose CPU time counts as the server's.
#[derive(Debug, Clone, Default)]
pub enum Meter {
    /// None: not measured.
    #[default]
    None,
    /// All threads of another process, of which `workers` serve connections.
    Process {
        /// The process.
        pid: u32,
        /// Threads that serve connections.
        workers: usize,
    },
    /// These threads of our own process.
    Threads(Vec<u32>),
}

/// The CPU counters at one time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuSnapshot {
    server: ThreadSeconds,
    own_process_s: f64,
    machine_s: f64,
}

/// CPU time between two snapshots.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuDelta {
    /// CPU of the server.
    pub server: CpuUsage,
    own_process_s: f64,
    machine_s: f64,
}

/// CPU seconds of some threads: the exact total, and user and kernel time as ticks count them.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadSeconds {
    total: f64,
    user: f64,
    kernel: f64,
}

impl Meter {
    /// How many threads serve connections; 0 if unknown.
    pub(crate) fn workers(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Process { workers, .. } => *workers,
            Self::Threads(tids) => tids.len(),
        }
    }

    /// The counters now.
    pub(crate) fn read(&self) -> CpuSnapshot {
        let server = match self {
            Self::None => ThreadSeconds::default(),
            Self::Process { pid, .. } => {
                sum_times(list_threads(*pid).iter().map(|tid| format!("/proc/{pid}/task/{tid}")))
            }
            Self::Threads(tids) => {
                sum_times(tids.iter().map(|tid| format!("/proc/self/task/{tid}")))
            }
        };
        let own_process = sum_times(std::iter::once("/proc/self".to_owned()));
        let own_process_s = match self {
            // The embedded server's threads are counted above.
            Self::Threads(_) => own_process.total - server.total,
            _ => own_process.total,
        };
        CpuSnapshot { server, own_process_s, machine_s: read_machine_cpu_s() }
    }
}

impl CpuSnapshot {
    /// CPU time since an `earlier` snapshot.
    pub(crate) fn since(&self, earlier: &Self) -> CpuDelta {
        let difference_or_zero = |a: f64, b: f64| (a - b).max(0.0);
        let exact_s = difference_or_zero(self.server.total, earlier.server.total);
        let user_s = difference_or_zero(self.server.user, earlier.server.user);
        let kernel_s = difference_or_zero(self.server.kernel, earlier.server.kernel);
        let user_share = if user_s + kernel_s > 0.0 { user_s / (user_s + kernel_s) } else { 0.5 };
        CpuDelta {
            server: CpuUsage {
                user_s: exact_s * user_share,
                kernel_s: exact_s * (1.0 - user_share),
            },
            own_process_s: difference_or_zero(self.own_process_s, earlier.own_process_s),
            machine_s: difference_or_zero(self.machine_s, earlier.machine_s),
        }
    }
}

impl CpuDelta {
    /// Cores taken by neither the server nor us, over `seconds`.
    pub(crate) fn other_cores(&self, seconds: f64) -> f64 {
        ((self.machine_s - self.server.cpu_s() - self.own_process_s) / seconds.max(1e-9)).max(0.0)
    }
}

/// Thread numbers of a process, in ascending order.
pub(crate) fn list_threads(pid: u32) -> Vec<u32> {
    let mut tids: Vec<u32> = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    tids.sort_unstable();
    tids
}

/// The name of a thread of a process.
pub(crate) fn read_thread_name(pid: u32, tid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Bytes in memory of a process: `VmRSS` and its huge pages.
pub(crate) fn read_resident_bytes(pid: u32) -> u64 {
    read_status_resident_bytes(&PathBuf::from(format!("/proc/{pid}/status")))
}

/// The same of our own process.
pub(crate) fn read_own_resident_bytes() -> u64 {
    read_status_resident_bytes(&PathBuf::from("/proc/self/status"))
}

fn read_status_resident_bytes(status_path: &PathBuf) -> u64 {
    let text = fs::read_to_string(status_path).unwrap_or_default();
    let kib = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    (kib("VmRSS:") + kib("HugetlbPages:")) * 1024
}

/// Sums the CPU time under folders such as `/proc/1/task/1` (threads) or `/proc/1` (processes).
fn sum_times(folders: impl Iterator<Item = String>) -> ThreadSeconds {
    folders.map(|folder| read_times(&folder)).fold(ThreadSeconds::default(), |a, b| ThreadSeconds {
        total: a.total + b.total,
        user: a.user + b.user,
        kernel: a.kernel + b.kernel,
    })
}

/// `schedstat` of a process covers its first thread only, so ticks are used for processes.
fn read_times(folder: &str) -> ThreadSeconds {
    let (user_ticks, kernel_ticks) =
        parse_ticks(&fs::read_to_string(format!("{folder}/stat")).unwrap_or_default());
    let ticks_per_second = clock_ticks_per_second() as f64;
    let (user_s, kernel_s) =
        (user_ticks as f64 / ticks_per_second, kernel_ticks as f64 / ticks_per_second);
    let exact_s = fs::read_to_string(format!("{folder}/schedstat"))
        .ok()
        .filter(|_| folder.contains("/task/"))
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
        .map_or(user_s + kernel_s, |ns| ns as f64 / 1e9);
    ThreadSeconds { total: exact_s, user: user_s, kernel: kernel_s }
}

/// User and kernel ticks of a `stat` line: fields 14 and 15, counted after the name, which may hold spaces.
fn parse_ticks(stat: &str) -> (u64, u64) {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_whitespace().skip(11).map(|field| field.parse().unwrap_or(0));
    (fields.next().unwrap_or(0), fields.next().unwrap_or(0))
}

/// Busy seconds of all CPUs since boot, time stolen by the host included.
fn read_machine_cpu_s() -> f64 {
    let [user, nice, kernel, _idle, _io_wait, interrupt, soft_interrupt, steal] = read_machine_s();
    user + nice + kernel + interrupt + soft_interrupt + steal
}

/// Seconds since boot that the host of a virtual machine took from it.
pub(crate) fn read_stolen_cpu_s() -> f64 {
    read_machine_s()[7]
}

/// The first numbers of the line about all CPUs, in seconds.
fn read_machine_s() -> [f64; 8] {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    [(); 8].map(|()| {
        let ticks = fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        ticks as f64 / clock_ticks_per_second() as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ticks_after_a_name_with_spaces() {
        let stat = "12 (a b) c) S 1 12 12 0 -1 4194560 100 0 0 0 250 750 0 0 20 0 4 0";
        assert_eq!(parse_ticks(stat), (250, 750));
    }

    #[test]
    fn measures_a_busy_thread() {
        // Its own thread alone: those of other tests end meanwhile, and their time with them.
        let this_thread = fs::read_link("/proc/thread-self").unwrap();
        let tid = this_thread.file_name().unwrap().to_str().unwrap();
        assert!(list_threads(std::process::id()).contains(&tid.parse().unwrap()));
        let meter = Meter::Threads(vec![tid.parse().unwrap()]);
        let before = meter.read();
        // However little of the processor a busy machine gives it.
        let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
        let mut iterations = 0_u64;
        while meter.read().since(&before).server.cpu_s() <= 0.005 {
            assert!(std::time::Instant::now() < end, "{:?}", meter.read());
            iterations = (0..100_000).fold(iterations, |sum, _| std::hint::black_box(sum + 1));
        }
        assert!(read_own_resident_bytes() > 100_000);
    }
}
