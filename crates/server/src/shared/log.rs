//! Lines on stderr for whoever runs the server.
//!
//! A thread of its own writes them, since stderr may be a pipe that nobody empties: the others hand a line over or
//! drop it, and never wait. What many clients can cause at once is one line a second for each kind.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that wait to be written, at most; further ones are counted and dropped.
const LINES_MAX: usize = 1024;
/// Bytes of one line, at most.
const LINE_BYTES_MAX: usize = 2048;
/// How long the end of the server waits for the last lines to be written.
const END_WAIT: Duration = Duration::from_millis(200);

/// What is said once a second at most, however often it happens.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Connections refused because of `-c`.
    RefusedConnection,
    /// Values refused for want of memory.
    RefusedStore,
    /// Connections closed because they speak the binary protocol.
    BinaryProtocol,
}

const KINDS: usize = 3;

/// The log of one server.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// `None` where the server is part of another program, whose stderr is its own affair.
    lines: Option<SyncSender<Message>>,
    lost: AtomicU64,
    limits: [Limit; KINDS],
}

#[derive(Debug)]
enum Message {
    Line(String),
    End(SyncSender<()>),
}

/// When a kind was said last, and how often it was left unsaid since.
#[derive(Debug, Default)]
struct Limit {
    second: AtomicU32,
    unsaid: AtomicU64,
}

/// The receiving end of a log, for the thread that writes.
pub(crate) struct Lines(Receiver<Message>);

impl Log {
    /// A log and the lines to be written.
    pub(crate) fn new() -> (Log, Lines) {
        let (sender, receiver) = sync_channel(LINES_MAX);
        let log = Log {
            lines: Some(sender),
            ..Log::default()
        };
        (log, Lines(receiver))
    }

    /// Whether anybody reads it.
    pub(crate) fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// Hands a line over, without its end; drops it when too many wait.
    pub(crate) fn line(&self, mut line: String) {
        let Some(lines) = &self.lines else {
            return;
        };
        truncate(&mut line);
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            line = format!("glasscache: {lost} lines of this log were lost\n{line}");
        }
        line.push('\n');
        if lines.try_send(Message::Line(line)).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }

    /// Says what `render` makes, unless its kind was said in this second already; the next line tells how often.
    pub(crate) fn limited(&self, kind: Kind, now_s: u32, render: impl FnOnce() -> String) {
        let Some(limit) = self.limits.get(kind as usize).filter(|_| self.is_on()) else {
            return;
        };
        if limit.second.swap(now_s, Ordering::Relaxed) == now_s {
            limit.unsaid.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut line = render();
        let unsaid = limit.unsaid.swap(0, Ordering::Relaxed);
        if unsaid > 0 {
            // Writing to a string cannot fail.
            let _ = write!(line, " ({unsaid} more since the last such line)");
        }
        self.line(line);
    }

    /// Waits a moment until everything handed over so far is written.
    pub(crate) fn end(&self) {
        let (sender, written) = sync_channel(1);
        if let Some(lines) = &self.lines
            && lines.try_send(Message::End(sender)).is_ok()
        {
            let _ = written.recv_timeout(END_WAIT);
        }
    }
}

impl Lines {
    /// Writes lines until the server has ended.
    pub(crate) fn write(self) {
        for message in self.0 {
            match message {
                Message::Line(line) => write_all(line.as_bytes()),
                Message::End(done) => {
                    let _ = done.send(());
                    return;
                }
            }
        }
    }
}

/// Writes to stderr as a whole; an error ends it, for there is nobody to tell.
fn write_all(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stderr(), bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn truncate(line: &mut String) {
    if line.len() > LINE_BYTES_MAX {
        let end = (0..=LINE_BYTES_MAX)
            .rev()
            .find(|at| line.is_char_boundary(*at));
        line.truncate(end.unwrap_or(0));
        line.push_str("...");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lines: &Lines) -> Vec<String> {
        let messages = std::iter::from_fn(|| lines.0.try_recv().ok());
        messages
            .filter_map(|message| match message {
                Message::Line(line) => Some(line),
                Message::End(_) => None,
            })
            .collect()
    }

    #[test]
    fn a_kind_is_said_once_a_second_with_the_number_left_unsaid() {
        let (log, lines) = Log::new();
        for _ in 0..5 {
            log.limited(Kind::RefusedStore, 7, || "no memory".to_owned());
        }
        log.limited(Kind::RefusedConnection, 7, || "full".to_owned());
        assert_eq!(taken(&lines), ["no memory\n", "full\n"]);
        log.limited(Kind::RefusedStore, 8, || "no memory".to_owned());
        assert_eq!(
            taken(&lines),
            ["no memory (4 more since the last such line)\n"]
        );
    }

    #[test]
    fn lines_that_nobody_writes_are_dropped_and_counted() {
        let (log, lines) = Log::new();
        (0..LINES_MAX + 10).for_each(|_| log.line("x".to_owned()));
        assert_eq!(taken(&lines).len(), LINES_MAX);
        log.line("y".to_owned());
        assert_eq!(
            taken(&lines),
            ["glasscache: 10 lines of this log were lost\ny\n"]
        );
    }

    #[test]
    fn a_log_without_a_reader_says_nothing() {
        let log = Log::default();
        log.limited(Kind::RefusedStore, 7, || panic!("nobody reads it"));
        log.line("x".to_owned());
        log.end();
    }
}
