//! Lines on stderr for the operator of the server.
//!
//! A thread of its own writes them, since stderr may be a pipe that nothing reads: the others pass a line to it or
//! drop it, and never wait. Events that many clients can cause at once get one line a second for each kind.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Maximum number of unwritten lines; further ones are counted and dropped.
const LINES_MAX: usize = 1024;
/// Maximum length of a line in bytes.
const LINE_BYTES_MAX: usize = 2048;
/// How long the shutdown, or a start, waits for lines to be written.
const LAST_LINES_WAIT: Duration = Duration::from_millis(200);

/// Events that are logged at most once a second.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LogKind {
    /// Connections refused because of `-c`.
    RefusedConnection,
    /// Values refused because there was no memory.
    RefusedStore,
    /// Connections closed because they speak the binary protocol.
    BinaryProtocol,
    /// Logins with a wrong user or password.
    FailedLogin,
    /// Connections of proxies without a header of the PROXY protocol.
    NoProxyHeader,
    /// TLS handshakes that failed.
    FailedTlsHandshake,
    /// Connections that wait because the kernel gives no descriptor or memory for them.
    NoDescriptor,
}

const LOG_KIND_COUNT: usize = 7;

/// The log of one server.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// `None` if the server is part of another program, which owns its stderr.
    line_sender: Option<SyncSender<LogMessage>>,
    lost_lines: AtomicU64,
    rate_limits: [RateLimit; LOG_KIND_COUNT],
}

#[derive(Debug)]
enum LogMessage {
    Line(String),
    /// Is replied to when the lines before it are written.
    Flush(SyncSender<()>),
    /// As `Flush`, and ends the thread.
    End(SyncSender<()>),
}

/// When a kind was last logged, and how many lines were suppressed since.
#[derive(Debug, Default)]
struct RateLimit {
    last_logged_s: AtomicU32,
    suppressed_lines: AtomicU64,
}

/// The receiving end of a log, for the thread that writes.
pub(crate) struct LogReceiver(Receiver<LogMessage>);

impl Log {
    /// A log and the receiver of its lines.
    pub(crate) fn new() -> (Log, LogReceiver) {
        let (sender, receiver) = sync_channel(LINES_MAX);
        let log = Log { line_sender: Some(sender), ..Log::default() };
        (log, LogReceiver(receiver))
    }

    /// Whether lines are written.
    pub(crate) fn is_on(&self) -> bool {
        self.line_sender.is_some()
    }

    /// Sends a line, without its end, to the writing thread; drops it when too many are pending.
    pub(crate) fn queue_line(&self, mut line: String) {
        let Some(line_sender) = &self.line_sender else {
            return;
        };
        truncate(&mut line);
        let lost_lines = self.lost_lines.swap(0, Ordering::Relaxed);
        if lost_lines > 0 {
            line = format!("glasscache: {lost_lines} lines of this log were lost\n{line}");
        }
        line.push('\n');
        if line_sender.try_send(LogMessage::Line(line)).is_err() {
            self.lost_lines.fetch_add(lost_lines + 1, Ordering::Relaxed);
        }
    }

    /// Logs the line of `render`, unless its kind was already logged in this second; the next line has the number
    /// suppressed.
    pub(crate) fn queue_line_rate_limited(
        &self,
        kind: LogKind,
        now_s: u32,
        render: impl FnOnce() -> String,
    ) {
        let Some(rate_limit) = self.rate_limits.get(kind as usize).filter(|_| self.is_on()) else {
            return;
        };
        // The second of another thread may be a later one.
        if rate_limit.last_logged_s.fetch_max(now_s, Ordering::Relaxed) >= now_s {
            rate_limit.suppressed_lines.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut line = render();
        let suppressed_lines = rate_limit.suppressed_lines.swap(0, Ordering::Relaxed);
        if suppressed_lines > 0 {
            // Writing to a string cannot fail.
            let _ = write!(line, " ({suppressed_lines} more since the last such line)");
        }
        self.queue_line(line);
    }

    /// Waits briefly for the lines so far to be written.
    pub(crate) fn flush(&self) {
        self.send_and_wait(LogMessage::Flush);
    }

    /// Ends the writing thread after the lines so far, and waits briefly for them to be written.
    pub(crate) fn finish_writing(&self) {
        self.send_and_wait(LogMessage::End);
    }

    fn send_and_wait(&self, new_message: impl FnOnce(SyncSender<()>) -> LogMessage) {
        let (written_sender, written_receiver) = sync_channel(1);
        if let Some(line_sender) = &self.line_sender
            && line_sender.try_send(new_message(written_sender)).is_ok()
        {
            let _ = written_receiver.recv_timeout(LAST_LINES_WAIT);
        }
    }
}

impl LogReceiver {
    /// Writes lines until the server has stopped.
    pub(crate) fn write_lines(self) {
        for message in self.0 {
            match message {
                LogMessage::Line(line) => write_all(line.as_bytes()),
                LogMessage::Flush(written_sender) => {
                    let _ = written_sender.send(());
                }
                LogMessage::End(written_sender) => {
                    let _ = written_sender.send(());
                    return;
                }
            }
        }
    }
}

/// Writes a whole line to stderr; an error ends it, because it cannot be reported.
fn write_all(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stderr(), bytes) {
            Ok(written_bytes) => bytes = bytes.get(written_bytes..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn truncate(line: &mut String) {
    if line.len() > LINE_BYTES_MAX {
        let end = (0..=LINE_BYTES_MAX).rev().find(|index| line.is_char_boundary(*index));
        line.truncate(end.unwrap_or(0));
        line.push_str("...");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_lines(receiver: &LogReceiver) -> Vec<String> {
        let messages = std::iter::from_fn(|| receiver.0.try_recv().ok());
        messages
            .filter_map(|message| match message {
                LogMessage::Line(line) => Some(line),
                LogMessage::Flush(_) | LogMessage::End(_) => None,
            })
            .collect()
    }

    #[test]
    fn a_kind_is_logged_once_a_second_with_the_number_suppressed() {
        let (log, receiver) = Log::new();
        for _ in 0..5 {
            log.queue_line_rate_limited(LogKind::RefusedStore, 7, || "no memory".to_owned());
        }
        log.queue_line_rate_limited(LogKind::RefusedConnection, 7, || "full".to_owned());
        assert_eq!(take_lines(&receiver), ["no memory\n", "full\n"]);
        log.queue_line_rate_limited(LogKind::RefusedStore, 8, || "no memory".to_owned());
        assert_eq!(take_lines(&receiver), ["no memory (4 more since the last such line)\n"]);
    }

    #[test]
    fn threads_whose_clocks_differ_by_a_second_log_a_kind_once() {
        let (log, receiver) = Log::new();
        for now_s in [7, 8, 7, 8, 7, 8] {
            log.queue_line_rate_limited(LogKind::RefusedStore, now_s, || now_s.to_string());
        }
        assert_eq!(take_lines(&receiver), ["7\n", "8\n"]);
    }

    #[test]
    fn lines_beyond_the_queue_are_dropped_and_counted() {
        let (log, receiver) = Log::new();
        (0..LINES_MAX + 10).for_each(|_| log.queue_line("x".to_owned()));
        assert_eq!(take_lines(&receiver).len(), LINES_MAX);
        log.queue_line("y".to_owned());
        assert_eq!(take_lines(&receiver), ["glasscache: 10 lines of this log were lost\ny\n"]);
    }

    #[test]
    fn a_log_without_a_reader_writes_nothing() {
        let log = Log::default();
        log.queue_line_rate_limited(LogKind::RefusedStore, 7, || panic!("nobody reads it"));
        log.queue_line("x".to_owned());
        log.finish_writing();
    }
}
