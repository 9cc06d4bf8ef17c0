//! What the kernel reports about this process: its CPU time and its resident memory.

use std::fs;

/// Clock ticks a second in procfs; 100 on every Linux that we run on.
const TICKS_PER_S: u64 = 100;

/// CPU time spent in user and in kernel mode, as seconds with six decimals.
pub(super) fn cpu_time() -> (String, String) {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may contain spaces; the numbers begin after the last parenthesis.
    let mut fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    let mut next_seconds = || {
        let ticks: u64 = fields.next().and_then(|field| field.parse().ok()).unwrap_or(0);
        format!("{}.{:02}0000", ticks / TICKS_PER_S, ticks % TICKS_PER_S)
    };
    (next_seconds(), next_seconds())
}

/// Bytes of this process that are in memory.
pub(super) fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let page_count: u64 =
        text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    page_count * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_and_resident_memory_are_read() {
        assert!(resident_bytes() > 100_000);
        let (user_cpu_s, _) = cpu_time();
        assert!(user_cpu_s.parse::<f64>().is_ok());
    }
}
