//! Recording of the requests that a server executes: the lines of its `watch fetchers mutations`, written as a key stream.
//!
//! Keys leave as 64-bit numbers only: the hash that every trace uses, or with a salt a hash that nobody can compute
//! without it. A sample is one of keys, so that the requests of a key stay together.

pub mod proxy;

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use glasscache_sim::trace::watch::{Access, Accesses};
use glasscache_sim::trace::writer::Writer;
use glasscache_sim::trace::{BATCH_ROWS, Batch, Op, key_number as hash_key};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::access::request_text_statistics;

/// Maximum length of a line of watch: a key of 250 bytes, percent-encoded, and the other fields.
const LINE_BYTES_MAX: usize = 4096;

/// What is kept of a key stream.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Hashes keys together with this text.
    pub salt: Option<String>,
    /// The share of the keys that is kept, above 0 and up to 1; `None` keeps all.
    pub sample: Option<f64>,
}

/// What was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RecordedCounts {
    /// Gets written.
    pub gets: u64,
    /// Writes written.
    pub writes: u64,
    /// Lines that the server dropped because they were not read in time, or because its threads could not queue them.
    pub skipped_lines: u64,
}

/// A recording that has ended.
#[derive(Debug)]
pub struct Recording<W> {
    /// What it was written to, complete.
    pub file: W,
    /// What was recorded.
    pub counts: RecordedCounts,
    /// Why it ended before its time: the server ended the watch, or its lines cannot be read.
    pub watch_error: Option<io::Error>,
}

/// A recording that is running.
struct Recorder<W: Write + Send> {
    options: Options,
    accesses: Accesses,
    batch: Batch,
    writer: Writer<W>,
    recorded_counts: RecordedCounts,
}

impl<W: Write + Send> Recorder<W> {
    /// Writes to `writer`, whose times are those of a clock.
    fn new(writer: Writer<W>, options: Options) -> Self {
        Self {
            options,
            accesses: Accesses::default(),
            batch: Batch::default(),
            writer,
            recorded_counts: RecordedCounts::default(),
        }
    }

    /// What was recorded so far.
    ///
    /// The last lines are still held back; [`Recorder::finish`] counts them.
    fn recorded_counts(&self) -> RecordedCounts {
        RecordedCounts { skipped_lines: self.accesses.skipped_lines, ..self.recorded_counts }
    }

    /// Takes one line of the watch.
    ///
    /// # Errors
    /// Writing failed.
    fn push(&mut self, line: &[u8]) -> io::Result<()> {
        self.accesses.push(line);
        while let Some(access) = self.accesses.next_complete() {
            self.write_access(&access)?;
        }
        Ok(())
    }

    /// Writes what is held back, ends the file, and returns it with what was recorded.
    ///
    /// # Errors
    /// Writing failed.
    fn finish(mut self) -> io::Result<(W, RecordedCounts)> {
        while let Some(access) = self.accesses.next_at_end() {
            self.write_access(&access)?;
        }
        self.writer.write(&self.batch)?;
        let recorded_counts = self.recorded_counts();
        Ok((self.writer.finish()?, recorded_counts))
    }

    fn write_access(&mut self, access: &Access) -> io::Result<()> {
        let key_number = match &self.options.salt {
            Some(salt) => salted_hash(salt, &access.key),
            None => hash_key(&access.key),
        };
        if self.options.sample.is_some_and(|share| !is_in_sample(key_number, share)) {
            return Ok(());
        }
        if access.op == Op::Get {
            self.recorded_counts.gets += 1;
        } else {
            self.recorded_counts.writes += 1;
        }
        self.batch.time.push(access.time_us);
        self.batch.key.push(key_number);
        self.batch.size.push(access.size);
        self.batch.op.push(Some(access.op));
        self.batch.ttl.push(access.ttl);
        if self.batch.len() >= BATCH_ROWS {
            self.writer.write(&self.batch)?;
            self.batch.clear();
        }
        Ok(())
    }
}

/// The first 64 bits of SHA-256 over the salt, its length, and the key.
fn salted_hash(salt: &str, key: &[u8]) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update((salt.len() as u64).to_le_bytes());
    hasher.update(salt.as_bytes());
    hasher.update(key);
    let digest = hasher.finalize();
    let mut first_bytes = [0; 8];
    first_bytes.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(first_bytes)
}

/// Whether a key is in a sample of this share of all keys.
fn is_in_sample(key_number: u64, share: f64) -> bool {
    // Keys that are numbers are spread first (the multiplier is 2^64 over the golden ratio).
    let mixed_key = (key_number ^ (key_number >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed_key >> 11) as f64) < share * (1_u64 << 53) as f64
}

/// Writes the lines of a running watch to `writer`, whose times are those of a clock, until `duration` has passed or
/// `is_stopped` returns true.
///
/// The stream should time out reads now and then, so that a silent server does not block the caller. The end of the
/// stream is an error of the watch: a server does not end one by itself.
///
/// # Errors
/// Writing failed.
pub fn record<W: Write + Send>(
    lines: impl BufRead,
    writer: Writer<W>,
    options: Options,
    duration: Duration,
    is_stopped: impl Fn() -> bool,
) -> io::Result<Recording<W>> {
    let mut recorder = Recorder::new(writer, options);
    let watch_error = read_watch(lines, &mut recorder, duration, is_stopped)?;
    let (file, counts) = recorder.finish()?;
    Ok(Recording { file, counts, watch_error })
}

/// Reads the watch; returns why it ended before its time, if it did.
fn read_watch<W: Write + Send>(
    mut lines: impl BufRead,
    recorder: &mut Recorder<W>,
    duration: Duration,
    is_stopped: impl Fn() -> bool,
) -> io::Result<Option<io::Error>> {
    let started = Instant::now();
    let mut line = Vec::with_capacity(LINE_BYTES_MAX);
    while started.elapsed() < duration && !is_stopped() {
        let available = match lines.fill_buf() {
            Ok([]) => return Ok(Some(io::ErrorKind::UnexpectedEof.into())),
            Ok(available) => available,
            Err(error) if is_timeout(&error) => continue,
            Err(error) => return Ok(Some(error)),
        };
        // All complete lines of the buffer are taken at once: the clock is read once for each buffer.
        let mut unread = available;
        while let Some(end) = memchr::memchr(b'\n', unread) {
            line.extend_from_slice(&unread[..end]);
            let text = line.strip_suffix(b"\r").unwrap_or(&line);
            recorder.push(text)?;
            line.clear();
            unread = &unread[end + 1..];
        }
        line.extend_from_slice(unread);
        let consumed_bytes = available.len();
        lines.consume(consumed_bytes);
        if line.len() > LINE_BYTES_MAX {
            let message = "a line is longer than 4,096 bytes";
            return Ok(Some(io::Error::new(io::ErrorKind::InvalidData, message)));
        }
    }
    Ok(None)
}

/// Lines that the threads of a memcached dropped so far because their own logs were full. No line of a watch reports
/// them, only `stats`.
///
/// `None` if the server does not count them, or does not reply.
pub fn read_dropped_lines(connection: impl io::Read + io::Write) -> Option<u64> {
    let rows = request_text_statistics(connection, "").ok()?;
    let (_, count) = rows.iter().find(|(name, _)| name == "log_worker_dropped")?;
    count.parse().ok()
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use glasscache_sim::trace::Format;

    const LINES: &str = "\
ts=5.10 gid=1 type=item_get key=a status=not_found clsid=0 cfd=25 size=0
ts=5.20 gid=2 type=item_get key=a status=not_found clsid=0 cfd=25 size=0
ts=5.21 gid=3 type=item_store key=a status=stored cmd=set ttl=7 clsid=1 cfd=25 size=5
skipped=4
ts=5.30 gid=4 type=item_get key=17 status=found clsid=1 cfd=25 size=5
";

    fn record_lines(options: Options) -> (String, RecordedCounts) {
        let writer = Writer::with_clock(Format::Csv, Vec::new()).unwrap();
        let minute = Duration::from_mins(1);
        let recording = record(LINES.as_bytes(), writer, options, minute, || false).unwrap();
        assert!(recording.watch_error.is_some());
        (String::from_utf8(recording.file).unwrap(), recording.counts)
    }

    #[test]
    fn gets_and_writes_are_written_and_skipped_lines_counted() {
        let (text, counts) = record_lines(Options::default());
        let number_of_a = hash_key(b"a");
        assert_eq!(
            text,
            format!(
                "time,key,size,op,ttl\n5.000010,{number_of_a},,get,\n5.000021,{number_of_a},5,set,7\n5.000030,17,5,get,\n"
            )
        );
        let expected = RecordedCounts { gets: 2, writes: 1, skipped_lines: 4 };
        assert_eq!(counts, expected);
    }

    /// A server whose `stats` never ends.
    #[derive(Default)]
    struct EndlessRows {
        read_bytes: usize,
    }

    impl io::Read for EndlessRows {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let row = b"STAT pid 1\r\n";
            let copied_bytes = row.len().min(buffer.len());
            buffer[..copied_bytes].copy_from_slice(&row[..copied_bytes]);
            self.read_bytes += copied_bytes;
            assert!(self.read_bytes < 1 << 20, "it is read without a bound");
            Ok(copied_bytes)
        }
    }

    impl io::Write for EndlessRows {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_counters_of_a_server_are_read_up_to_a_bound() {
        assert_eq!(read_dropped_lines(EndlessRows::default()), None);
    }

    #[test]
    fn salted_keys_differ_by_salt_and_stay_together() {
        let keys = |salt: &str| -> Vec<String> {
            let (text, _) = record_lines(Options { salt: Some(salt.to_owned()), sample: None });
            let cells = text.lines().skip(1).map(|line| line.split(',').nth(1));
            cells.map(|cell| cell.unwrap().to_owned()).collect()
        };
        let (pepper_keys, sugar_keys) = (keys("pepper"), keys("sugar"));
        assert_eq!(pepper_keys[0], pepper_keys[1]);
        assert!(
            pepper_keys
                .iter()
                .zip(&sugar_keys)
                .all(|(pepper_key, sugar_key)| pepper_key != sugar_key)
        );
        assert!(!pepper_keys.contains(&"17".to_owned()));
    }

    #[test]
    fn a_sample_has_its_share_of_the_keys() {
        for share in [0.1, 0.5, 1.0] {
            let kept_count = (0..100_000_u64).filter(|&key| is_in_sample(key, share)).count();
            assert!((kept_count as f64 / 100_000.0 - share).abs() < 0.01, "{kept_count}");
        }
    }
}
