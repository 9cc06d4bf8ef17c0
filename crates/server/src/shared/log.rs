//! Lines for the operator of the server, on stderr or in a file.
//!
//! A thread of its own writes them, since stderr may be a pipe that nothing reads: the others pass a line to it or
//! drop it, and never wait. Events that many clients can cause at once get one line a second for each kind, and what was
//! suppressed is counted within a minute.

use std::fmt::Write as _;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use crate::shared::log_output::{LogFile, LogLevel, LogStyle};

/// Maximum number of unwritten lines; further ones are counted and dropped.
const LINES_MAX: usize = 1024;
/// Maximum length of a line in bytes.
const LINE_BYTES_MAX: usize = 2048;
/// How often suppressed lines are counted that no further line of their kind counts: two of these are below a minute.
const SUPPRESSED_CHECK_INTERVAL: Duration = Duration::from_secs(20);
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
    /// Commands that took longer than `-o slow_ms`.
    SlowCommand,
}

const LOG_KINDS: [LogKind; 8] = [
    LogKind::RefusedConnection,
    LogKind::RefusedStore,
    LogKind::BinaryProtocol,
    LogKind::FailedLogin,
    LogKind::NoProxyHeader,
    LogKind::FailedTlsHandshake,
    LogKind::NoDescriptor,
    LogKind::SlowCommand,
];

impl LogKind {
    /// The events of the kind.
    fn describe(self) -> &'static str {
        match self {
            LogKind::RefusedConnection => "refused connections (-c)",
            LogKind::RefusedStore => "values refused for want of memory",
            LogKind::BinaryProtocol => "closed connections of the binary protocol (-B)",
            LogKind::FailedLogin => "failed logins",
            LogKind::NoProxyHeader => "closed connections without a header of the PROXY protocol",
            LogKind::FailedTlsHandshake => "failed TLS handshakes",
            LogKind::NoDescriptor => "failures to accept a connection",
            LogKind::SlowCommand => "slow commands (-o slow_ms)",
        }
    }
}

type RateLimits = [RateLimit; LOG_KINDS.len()];

/// The log of one server.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// `None` if the server is part of another program, which owns its stderr.
    line_sender: Option<SyncSender<LogMessage>>,
    lost_lines: AtomicU64,
    rate_limits: Arc<RateLimits>,
}

#[derive(Debug)]
enum LogMessage {
    Line(LogLevel, SystemTime, String),
    /// Opens the log file again.
    Reopen,
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
pub(crate) struct LogReceiver {
    messages: Receiver<LogMessage>,
    rate_limits: Arc<RateLimits>,
    style: LogStyle,
    /// `None` writes to stderr.
    file: Option<LogFile>,
}

impl Log {
    /// A log and the receiver of its lines.
    pub(crate) fn new(style: LogStyle, file: Option<LogFile>) -> (Log, LogReceiver) {
        let (sender, messages) = sync_channel(LINES_MAX);
        let log = Log { line_sender: Some(sender), ..Log::default() };
        let rate_limits = Arc::clone(&log.rate_limits);
        (log, LogReceiver { messages, rate_limits, style, file })
    }

    /// Whether lines are written.
    pub(crate) fn is_on(&self) -> bool {
        self.line_sender.is_some()
    }

    /// Sends a line, without its end, to the writing thread; drops it when too many are pending.
    pub(crate) fn queue_line(&self, level: LogLevel, mut line: String) {
        let Some(line_sender) = &self.line_sender else {
            return;
        };
        truncate(&mut line);
        let lost_lines = self.lost_lines.swap(0, Ordering::Relaxed);
        if lost_lines > 0 {
            line = format!("glasscache: {lost_lines} lines of this log were lost\n{line}");
        }
        if line_sender.try_send(LogMessage::Line(level, SystemTime::now(), line)).is_err() {
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
        self.queue_line(LogLevel::Warning, line);
    }

    /// Sends the line of something that succeeded, or is a warning.
    pub(crate) fn queue_outcome(&self, start: &str, outcome: Result<String, String>) {
        let (level, message) = match outcome {
            Ok(message) => (LogLevel::Info, message),
            Err(message) => (LogLevel::Warning, message),
        };
        self.queue_line(level, format!("{start}: {message}"));
    }

    /// Opens the log file again, if there is one.
    pub(crate) fn reopen(&self) {
        if let Some(line_sender) = &self.line_sender {
            // LOSSY: where so much is pending, the next SIGHUP does it.
            let _ = line_sender.try_send(LogMessage::Reopen);
        }
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
        self.write_lines_and_check_every(SUPPRESSED_CHECK_INTERVAL);
    }

    fn write_lines_and_check_every(mut self, interval: Duration) {
        let mut last_logged_s = self.read_last_logged_s();
        let mut next_check_at = Instant::now() + interval;
        loop {
            let wait = next_check_at.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(wait) {
                Ok(LogMessage::Line(level, at, text)) => self.write(level, at, &text),
                Ok(LogMessage::Reopen) => self.reopen(),
                Ok(LogMessage::Flush(written_sender)) => {
                    let _ = written_sender.send(());
                }
                Ok(LogMessage::End(written_sender)) => {
                    let _ = written_sender.send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= next_check_at {
                last_logged_s = self.report_suppressed(last_logged_s);
                next_check_at = Instant::now() + interval;
            }
        }
    }

    fn read_last_logged_s(&self) -> [u32; LOG_KINDS.len()] {
        self.rate_limits.each_ref().map(|limit| limit.last_logged_s.load(Ordering::Relaxed))
    }

    /// Writes how many lines were suppressed of each kind that has had no line since the check before, when it was last
    /// logged at `previous_s`; returns when each is last logged now.
    fn report_suppressed(&self, previous_s: [u32; LOG_KINDS.len()]) -> [u32; LOG_KINDS.len()] {
        let last_logged_s = self.read_last_logged_s();
        let limits = LOG_KINDS.iter().zip(&*self.rate_limits);
        for ((kind, limit), (now, before)) in limits.zip(last_logged_s.iter().zip(&previous_s)) {
            if now != before {
                continue;
            }
            let suppressed_lines = limit.suppressed_lines.swap(0, Ordering::Relaxed);
            if suppressed_lines > 0 {
                let kind = kind.describe();
                let text =
                    format!("glasscache: {suppressed_lines} more since the last such line: {kind}");
                self.write(LogLevel::Warning, SystemTime::now(), &text);
            }
        }
        last_logged_s
    }

    fn reopen(&mut self) {
        let Some(file) = &mut self.file else {
            return;
        };
        let (level, sentence) = match file.reopen() {
            Ok(sentence) => (LogLevel::Info, sentence),
            Err(sentence) => (LogLevel::Warning, sentence),
        };
        self.write(level, SystemTime::now(), &format!("glasscache: SIGHUP: {sentence}"));
    }

    fn write(&self, level: LogLevel, at: SystemTime, text: &str) {
        let line = self.style.format(level, at, text);
        match &self.file {
            Some(log_file) => write_all(log_file.file(), line.as_bytes()),
            None => write_all(rustix::stdio::stderr(), line.as_bytes()),
        }
    }
}

/// Writes a whole line; an error ends it, because it cannot be reported.
fn write_all(target: impl AsFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(&target, bytes) {
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
        let messages = std::iter::from_fn(|| receiver.messages.try_recv().ok());
        messages
            .filter_map(|message| match message {
                LogMessage::Line(_, _, line) => Some(line),
                LogMessage::Reopen | LogMessage::Flush(_) | LogMessage::End(_) => None,
            })
            .collect()
    }

    #[test]
    fn a_kind_is_logged_once_a_second_with_the_number_suppressed() {
        let (log, receiver) = Log::new(LogStyle::Plain, None);
        for _ in 0..5 {
            log.queue_line_rate_limited(LogKind::RefusedStore, 7, || "no memory".to_owned());
        }
        log.queue_line_rate_limited(LogKind::RefusedConnection, 7, || "full".to_owned());
        assert_eq!(take_lines(&receiver), ["no memory", "full"]);
        log.queue_line_rate_limited(LogKind::RefusedStore, 8, || "no memory".to_owned());
        assert_eq!(take_lines(&receiver), ["no memory (4 more since the last such line)"]);
    }

    #[test]
    fn threads_whose_clocks_differ_by_a_second_log_a_kind_once() {
        let (log, receiver) = Log::new(LogStyle::Plain, None);
        for now_s in [7, 8, 7, 8, 7, 8] {
            log.queue_line_rate_limited(LogKind::RefusedStore, now_s, || now_s.to_string());
        }
        assert_eq!(take_lines(&receiver), ["7", "8"]);
    }

    #[test]
    fn lines_beyond_the_queue_are_dropped_and_counted() {
        let (log, receiver) = Log::new(LogStyle::Plain, None);
        (0..LINES_MAX + 10).for_each(|_| log.queue_line(LogLevel::Info, "x".to_owned()));
        assert_eq!(take_lines(&receiver).len(), LINES_MAX);
        log.queue_line(LogLevel::Info, "y".to_owned());
        assert_eq!(take_lines(&receiver), ["glasscache: 10 lines of this log were lost\ny"]);
    }

    #[test]
    fn a_log_without_a_reader_writes_nothing() {
        let log = Log::default();
        log.queue_line_rate_limited(LogKind::RefusedStore, 7, || panic!("nobody reads it"));
        log.queue_line(LogLevel::Info, "x".to_owned());
        log.finish_writing();
    }

    #[test]
    fn suppressed_lines_are_counted_although_no_such_line_follows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (log, receiver) = Log::new(LogStyle::Plain, Some(LogFile::open(&path).unwrap()));
        let interval = Duration::from_millis(20);
        let thread = std::thread::spawn(move || receiver.write_lines_and_check_every(interval));
        for _ in 0..296 {
            log.queue_line_rate_limited(LogKind::RefusedConnection, 7, || "full".to_owned());
        }
        let read_log = || std::fs::read_to_string(&path).unwrap();
        let started_at = Instant::now();
        while read_log().lines().count() < 2 && started_at.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Nothing follows once it is counted.
        std::thread::sleep(3 * interval);
        let expected =
            "full\nglasscache: 295 more since the last such line: refused connections (-c)\n";
        assert_eq!(read_log(), expected);
        log.finish_writing();
        thread.join().unwrap();
    }
}
