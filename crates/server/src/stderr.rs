//! Messages of a server process, whose stderr may be a pipe that nothing reads or a file on a full disk.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a full pipe may delay a message.
const WRITE_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// A pipe that is writable takes at least this many bytes at once (`PIPE_BUF`).
const CHUNK_BYTES: usize = 4096;

/// Writes `text` to stderr as far as that takes it within a moment: never fails, and never blocks for longer.
///
/// Not `eprint`, which panics if the write fails, waits for a full pipe, and waits for the lock of stderr, which a
/// thread that hangs may hold.
pub fn print_without_waiting(text: &str) {
    write_without_waiting(rustix::stdio::stderr(), text);
}

/// Writes `text` to a descriptor as far as that takes it within a moment.
pub fn write_without_waiting(descriptor: impl AsFd, text: &str) {
    let mut unwritten = text.as_bytes();
    while !unwritten.is_empty() {
        let mut poll_fds = [PollFd::new(&descriptor, PollFlags::OUT)];
        if !poll(&mut poll_fds, Some(&WRITE_WAIT)).is_ok_and(|ready_count| ready_count > 0) {
            return;
        }
        let chunk = unwritten.get(..CHUNK_BYTES).unwrap_or(unwritten);
        match rustix::io::write(&descriptor, chunk) {
            Ok(written_bytes) if written_bytes > 0 => {
                unwritten = unwritten.get(written_bytes..).unwrap_or_default();
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn neither_a_full_disk_nor_a_full_or_broken_pipe_stops_the_writer() {
        let full_disk = File::options().write(true).open("/dev/full").unwrap();
        write_without_waiting(&full_disk, "lost");
        let (mut reader, writer) = std::io::pipe().unwrap();
        let long_text = "x".repeat(1 << 20);
        let began_at = Instant::now();
        write_without_waiting(&writer, &long_text);
        assert!(began_at.elapsed() < Duration::from_secs(30));
        drop(writer);
        let mut received = String::new();
        reader.read_to_string(&mut received).unwrap();
        assert!(!received.is_empty() && long_text.starts_with(&received));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        write_without_waiting(&writer, "lost");
    }
}
