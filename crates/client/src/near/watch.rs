//! What servers report of other clients' changes: the conversation of one watch.
//!
//! A watch requests `watch mutations deletions heartbeat` with the client's namespace as `prefix=`. A glasscache server
//! reports every change so; each heartbeat reports until when every change has been reported. memcached refuses
//! these words, and is then watched without them: it reports stores and deletes. The driver (`crate::watch`) moves the
//! bytes and passes in the time (docs/decisions/strategies.md, 0082).

use std::time::{Duration, Instant};

use glasscache_protocol::{ascii, base64, percent};

use super::entry::{NearKey, near_key};
use glasscache_protocol::meta::request::WireKey;

/// Bytes of a line, at most: a key of 250 bytes takes 750, beside a few fields.
const LINE_BYTES_MAX: usize = 4096;

/// Heartbeats before the delay of a connection counts as known.
const HEARTBEATS_MIN: u32 = 3;

/// How long the least delay is remembered, in milliseconds of the server: two clocks differ by 1 ms in such a time if
/// one is fast by 50 millionths.
const DELAY_WINDOW_MS: u64 = 10_000;

/// What a server reports to a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportLevel {
    /// Every change, with heartbeats.
    Changes,
    /// Stores and deletes, without heartbeats.
    StoresAndDeletes,
    /// Nothing.
    Nothing,
}

/// What a watch received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// The server has begun to report, or does not.
    Began(ReportLevel),
    /// The item under a key was changed.
    Changed(Vec<u8>),
    /// Many or all items were changed, or lines were lost.
    ChangedMany,
    /// All items will be removed in this many seconds.
    FlushIn(u32),
    /// Everything before this moment was reported.
    Confirmed(Instant),
}

/// A line is longer than any that a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchLineTooLong;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchStage {
    /// The login was sent.
    LoggingIn,
    /// A watch of all changes was requested.
    RequestedChanges,
    /// A watch of stores and deletes alone was requested.
    RequestedStoresAndDeletes,
    /// Lines follow.
    Reporting,
    /// The server refused.
    Refused,
}

/// The conversation with one server.
#[derive(Debug)]
pub struct WatchConversation {
    stage: WatchStage,
    namespace: Vec<u8>,
    /// The beginning of a line.
    partial_line: Vec<u8>,
    output: Vec<u8>,
    delays: HeartbeatDelays,
}

impl WatchConversation {
    /// A watch of the keys of a namespace; the request of a login is sent before, if there is one.
    pub fn new(namespace: &[u8], login_request: Option<&[u8]>) -> Self {
        let mut conversation = Self {
            stage: WatchStage::LoggingIn,
            namespace: namespace.to_vec(),
            partial_line: Vec::new(),
            output: Vec::new(),
            delays: HeartbeatDelays::default(),
        };
        match login_request {
            Some(login_request) => conversation.output.extend_from_slice(login_request),
            None => conversation.request_watch(),
        }
        conversation
    }

    /// Takes the bytes to be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Takes what was received at `now`, and passes on what it reports.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now: Instant,
        handle_event: &mut impl FnMut(WatchEvent),
    ) -> Result<(), WatchLineTooLong> {
        let mut remaining = bytes;
        while let Some(end) = remaining.iter().position(|&byte| byte == b'\n') {
            let (head, tail) = remaining.split_at(end);
            remaining = tail.get(1..).unwrap_or_default();
            if self.partial_line.is_empty() {
                self.handle_line(head, now, handle_event);
            } else {
                let mut line = std::mem::take(&mut self.partial_line);
                line.extend_from_slice(head);
                self.handle_line(&line, now, handle_event);
            }
        }
        if self.partial_line.len() + remaining.len() > LINE_BYTES_MAX {
            return Err(WatchLineTooLong);
        }
        self.partial_line.extend_from_slice(remaining);
        Ok(())
    }

    fn request_watch(&mut self) {
        self.stage = WatchStage::RequestedChanges;
        self.output.extend_from_slice(b"watch mutations deletions heartbeat prefix=");
        percent::encode(&self.namespace, &mut self.output);
        self.output.extend_from_slice(b"\r\n");
    }

    fn handle_line(
        &mut self,
        line: &[u8],
        now: Instant,
        handle_event: &mut impl FnMut(WatchEvent),
    ) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match (self.stage, line) {
            (WatchStage::Reporting, line) => self.handle_report_line(line, now, handle_event),
            (WatchStage::LoggingIn, b"STORED") => self.request_watch(),
            (WatchStage::RequestedChanges, b"OK") => {
                self.stage = WatchStage::Reporting;
                handle_event(WatchEvent::Began(ReportLevel::Changes));
            }
            (WatchStage::RequestedStoresAndDeletes, b"OK") => {
                self.stage = WatchStage::Reporting;
                handle_event(WatchEvent::Began(ReportLevel::StoresAndDeletes));
            }
            (WatchStage::RequestedChanges, b"ERROR") => {
                self.stage = WatchStage::RequestedStoresAndDeletes;
                self.output.extend_from_slice(b"watch mutations deletions\r\n");
            }
            (WatchStage::Refused, _) => {}
            _ => {
                self.stage = WatchStage::Refused;
                handle_event(WatchEvent::Began(ReportLevel::Nothing));
            }
        }
    }

    /// Passes on what a line reports; an unknown line may be about any key.
    fn handle_report_line(
        &mut self,
        line: &[u8],
        now: Instant,
        handle_event: &mut impl FnMut(WatchEvent),
    ) {
        let find_field = |name: &[u8]| {
            let mut tokens = ascii::tokens(line);
            tokens.find_map(|token| token.strip_prefix(name))
        };
        let find_number = |name: &[u8]| find_field(name).and_then(ascii::parse_u64);
        if let Some(key) = find_field(b"key=") {
            return handle_event(WatchEvent::Changed(percent::decode(key)));
        }
        match find_field(b"type=") {
            Some(b"heartbeat") => {
                let sent_at = find_number(b"ms=")
                    .and_then(|sent_ms| self.delays.record_heartbeat(sent_ms, now));
                if let Some(sent_at) = sent_at {
                    handle_event(WatchEvent::Confirmed(sent_at));
                }
            }
            Some(b"flush_all") => match find_number(b"delay=") {
                Some(delay_s @ 1..) => {
                    handle_event(WatchEvent::FlushIn(u32::try_from(delay_s).unwrap_or(u32::MAX)));
                }
                _ => handle_event(WatchEvent::ChangedMany),
            },
            _ => handle_event(WatchEvent::ChangedMany),
        }
    }
}

/// When heartbeats were sent, by this process's clock: the server's time plus the least difference of the two clocks,
/// which is that of the heartbeat with the least delay.
#[derive(Debug, Default)]
struct HeartbeatDelays {
    /// The moment from which the differences of the two clocks count.
    base: Option<Instant>,
    received_count: u32,
    window_began_ms: u64,
    difference_min_ms: Option<i64>,
    previous_difference_min_ms: Option<i64>,
}

impl HeartbeatDelays {
    /// When a heartbeat was sent; `None`: too few have come.
    fn record_heartbeat(&mut self, sent_ms: u64, now: Instant) -> Option<Instant> {
        let base = *self.base.get_or_insert(now);
        let now_ms = i64::try_from(now.saturating_duration_since(base).as_millis()).ok()?;
        let difference_ms = now_ms.checked_sub(i64::try_from(sent_ms).ok()?)?;
        if sent_ms.saturating_sub(self.window_began_ms) >= DELAY_WINDOW_MS {
            self.window_began_ms = sent_ms;
            self.previous_difference_min_ms = self.difference_min_ms.take();
        }
        let difference_min_ms = self.difference_min_ms.unwrap_or(difference_ms).min(difference_ms);
        self.difference_min_ms = Some(difference_min_ms);
        self.received_count = self.received_count.saturating_add(1);
        if self.received_count < HEARTBEATS_MIN {
            return None;
        }
        let difference_min_ms =
            difference_min_ms.min(self.previous_difference_min_ms.unwrap_or(difference_min_ms));
        let delay_ms = u64::try_from(difference_ms.checked_sub(difference_min_ms)?).ok()?;
        now.checked_sub(Duration::from_millis(delay_ms))
    }
}

/// The keys under which a client may keep the item with this key: as it is, and in base64.
pub(super) fn possible_near_keys(key: &[u8]) -> [NearKey; 2] {
    let mut encoded = Vec::new();
    base64::encode(key, &mut encoded);
    let plain = WireKey { bytes: key, is_base64: false };
    let in_base64 = WireKey { bytes: &encoded, is_base64: true };
    [near_key(plain), near_key(in_base64)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events_of(
        conversation: &mut WatchConversation,
        bytes: &[u8],
        now: Instant,
    ) -> Vec<WatchEvent> {
        let mut events = Vec::new();
        conversation.receive(bytes, now, &mut |event| events.push(event)).unwrap();
        events
    }

    fn reporting_conversation() -> WatchConversation {
        let mut conversation = WatchConversation::new(b"", None);
        events_of(&mut conversation, b"OK\r\n", Instant::now());
        conversation
    }

    #[test]
    fn watch_requests_the_namespace_and_then_what_memcached_knows() {
        let mut conversation = WatchConversation::new(b"a:b ", None);
        assert_eq!(
            conversation.take_output(),
            b"watch mutations deletions heartbeat prefix=a%3Ab%20\r\n"
        );
        let now = Instant::now();
        assert_eq!(events_of(&mut conversation, b"ERROR\r\n", now), []);
        assert_eq!(conversation.take_output(), b"watch mutations deletions\r\n");
        let began = WatchEvent::Began(ReportLevel::StoresAndDeletes);
        assert_eq!(events_of(&mut conversation, b"OK\r\n", now), [began]);
    }

    #[test]
    fn watch_logs_in_first() {
        let mut conversation = WatchConversation::new(b"", Some(b"set a 0 0 3\r\nu p\r\n"));
        assert_eq!(conversation.take_output(), b"set a 0 0 3\r\nu p\r\n");
        events_of(&mut conversation, b"STORED\r\n", Instant::now());
        assert!(conversation.take_output().starts_with(b"watch "));
    }

    #[test]
    fn server_that_refuses_both_watches_reports_nothing() {
        for replies in [
            &b"ERROR\r\nERROR\r\n"[..],
            b"CLIENT_ERROR watch commands not allowed\r\n",
            b"WATCHER_TOO_MANY log watcher limit reached\r\nmore\r\n",
        ] {
            let mut conversation = WatchConversation::new(b"", None);
            let events = events_of(&mut conversation, replies, Instant::now());
            assert_eq!(events, [WatchEvent::Began(ReportLevel::Nothing)]);
        }
    }

    #[test]
    fn lines_name_changed_keys_and_lost_lines_change_many() {
        let changed = |key: &[u8]| WatchEvent::Changed(key.to_vec());
        for (line, event) in [
            (
                "ts=1.2 gid=3 type=item_store key=a%3A1 status=stored cmd=set ttl=0 clsid=1 cfd=9 size=1",
                changed(b"a:1"),
            ),
            ("ts=1.2 gid=3 type=item_changed key=a%20b cmd=incr cfd=9\r", changed(b"a b")),
            ("ts=1.2 gid=3 type=deleted key=x cmd=md clsid=1 size=2", changed(b"x")),
            ("ts=1.2 gid=3 type=prefix_flushed prefix=a cmd=mf", WatchEvent::ChangedMany),
            ("ts=1.2 gid=3 type=flush_all delay=0", WatchEvent::ChangedMany),
            ("ts=1.2 gid=3 type=flush_all delay=7", WatchEvent::FlushIn(7)),
            ("skipped=12", WatchEvent::ChangedMany),
            ("what no version prints", WatchEvent::ChangedMany),
            ("", WatchEvent::ChangedMany),
        ] {
            let line = format!("{line}\n");
            let events = events_of(&mut reporting_conversation(), line.as_bytes(), Instant::now());
            assert_eq!(events, [event], "{line}");
        }
    }

    #[test]
    fn stream_without_line_ends_is_refused() {
        let mut conversation = reporting_conversation();
        let bytes = [b'x'; LINE_BYTES_MAX + 1];
        let receive_result = conversation.receive(&bytes, Instant::now(), &mut |_| {});
        assert_eq!(receive_result, Err(WatchLineTooLong));
    }

    #[test]
    fn late_heartbeats_confirm_the_moment_at_which_they_were_sent() {
        let mut conversation = reporting_conversation();
        let start = Instant::now();
        let after = |time_ms| start + Duration::from_millis(time_ms);
        let mut receive_heartbeat = |sent_ms: u64, received_ms| {
            let line = format!("type=heartbeat ms={sent_ms}\n");
            events_of(&mut conversation, line.as_bytes(), after(received_ms))
        };
        // 5 ms, 2 ms and 2 ms of delay: too few are known until the third.
        assert_eq!(receive_heartbeat(1000, 5), []);
        assert_eq!(receive_heartbeat(1010, 12), []);
        assert_eq!(receive_heartbeat(1020, 22), [WatchEvent::Confirmed(after(22))]);
        // One that was delayed by 500 ms confirms what had been reported then.
        assert_eq!(receive_heartbeat(1030, 532), [WatchEvent::Confirmed(after(32))]);
        assert_eq!(receive_heartbeat(1540, 542), [WatchEvent::Confirmed(after(542))]);
        // A delay that stays for two windows is that of the connection.
        for sent_ms in (2000..40_000).step_by(1000) {
            receive_heartbeat(sent_ms, sent_ms - 1000 + 50);
        }
        assert_eq!(receive_heartbeat(40_000, 39_050), [WatchEvent::Confirmed(after(39_050))]);
    }

    proptest! {
        #[test]
        fn received_bytes_mean_the_same_however_they_are_split(
            lines in proptest::collection::vec("(key=[a-z%0-9]{1,9}|skipped=[0-9]|type=flush_all delay=[0-9]|[ -~]{0,30})", 0..12),
            splits in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
        ) {
            let bytes: Vec<u8> = lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect();
            let now = Instant::now();
            let whole_events = events_of(&mut reporting_conversation(), &bytes, now);
            let mut ends: Vec<usize> = splits.iter().map(|split| split.index(bytes.len() + 1)).collect();
            ends.extend([0, bytes.len()]);
            ends.sort_unstable();
            let mut conversation = reporting_conversation();
            let events_of_parts = ends.windows(2).flat_map(|range| {
                events_of(&mut conversation, &bytes[range[0]..range[1]], now)
            });
            prop_assert_eq!(events_of_parts.collect::<Vec<_>>(), whole_events);
        }

        #[test]
        fn any_key_is_decoded_from_its_line(key in proptest::collection::vec(any::<u8>(), 1..250)) {
            let mut line = b"ts=1.2 gid=3 type=item_store key=".to_vec();
            percent::encode(&key, &mut line);
            line.extend_from_slice(b" status=stored\n");
            let events = events_of(&mut reporting_conversation(), &line, Instant::now());
            prop_assert_eq!(events, [WatchEvent::Changed(key)]);
        }

        #[test]
        fn any_bytes_are_received_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = WatchConversation::new(b"", None).receive(&bytes, Instant::now(), &mut |_| {});
            let _ = reporting_conversation().receive(&bytes, Instant::now(), &mut |_| {});
        }
    }
}
