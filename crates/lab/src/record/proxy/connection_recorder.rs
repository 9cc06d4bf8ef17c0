//! Records one connection as requests: reads in the order of its commands, sizes from the replies; a pause ends a
//! request.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use glasscache_record::{RecordedReads, Recorder, Request};

use super::commands::{CommandEvent, CommandScanner, Effect, MetaGet};
use super::replies::{ReplyEvent, ReplyScanner};

/// Maximum number of replies that are awaited; beyond it the sizes of the oldest reads stay unknown.
const PENDING_REPLIES_MAX: usize = 100_000;

/// Records what a connection reads.
#[derive(Debug)]
pub(super) struct ConnectionRecorder {
    recorder: Recorder,
    /// A pause of this length ends a request.
    request_gap: Duration,
    /// The request under way, if it is recorded.
    request: Option<Request>,
    /// When the connection last did anything, from its first command on.
    last_active_at: Option<Instant>,
    command_scanner: CommandScanner,
    reply_scanner: ReplyScanner,
    pending_replies: VecDeque<PendingReply>,
    pub(super) counts: ConnectionCounts,
}

/// What a connection did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ConnectionCounts {
    pub(super) reads: u64,
    pub(super) writes: u64,
}

/// A reply that is still to come.
#[derive(Debug)]
enum PendingReply {
    Value(Vec<u8>, RecordedRead),
    End,
    MetaValue(MetaGet, RecordedRead),
    Noop,
}

/// A recorded read.
#[derive(Debug, Clone)]
struct RecordedRead(Option<(Request, RecordedReads)>);

impl RecordedRead {
    fn set_size(&self, value_bytes: u64) {
        if let Self(Some((request, recorded_reads))) = self {
            request.set_size(
                *recorded_reads,
                0,
                usize::try_from(value_bytes).unwrap_or(usize::MAX),
            );
        }
    }
}

impl ConnectionRecorder {
    pub(super) fn new(recorder: Recorder, request_gap: Duration) -> Self {
        Self {
            recorder,
            request_gap,
            request: None,
            last_active_at: None,
            command_scanner: CommandScanner::default(),
            reply_scanner: ReplyScanner::default(),
            pending_replies: VecDeque::new(),
            counts: ConnectionCounts::default(),
        }
    }

    /// Whether the connection's commands cannot be followed.
    pub(super) fn is_out_of_sync(&self) -> bool {
        self.command_scanner.is_out_of_sync()
    }

    /// Takes bytes of the client.
    pub(super) fn on_client_bytes(&mut self, bytes: &[u8], now: Instant) {
        let mut events = Vec::new();
        self.command_scanner.scan(bytes, &mut |event| events.push(event));
        for event in events {
            self.handle_command(event, now);
        }
        self.record_activity(now);
    }

    /// Takes bytes of the server.
    pub(super) fn on_server_bytes(&mut self, bytes: &[u8], now: Instant) {
        let mut events = Vec::new();
        self.reply_scanner.scan(bytes, &mut |event| events.push(event));
        for event in events {
            self.handle_reply(&event);
        }
        self.record_activity(now);
    }

    fn record_activity(&mut self, now: Instant) {
        self.last_active_at = self.last_active_at.map(|_| now);
    }

    fn handle_command(&mut self, event: CommandEvent, now: Instant) {
        match event {
            CommandEvent::Get(key, effect) => {
                let read = self.record_read(&key, effect, now);
                self.await_reply(PendingReply::Value(key, read));
            }
            CommandEvent::MetaGet(get) => {
                let read = self.record_read(&get.item_key, get.effect, now);
                self.await_reply(PendingReply::MetaValue(get, read));
            }
            CommandEvent::AwaitEnd => self.await_reply(PendingReply::End),
            CommandEvent::Noop => self.await_reply(PendingReply::Noop),
            CommandEvent::Write(key, effect) => {
                self.counts.writes += 1;
                if let Some(request) = self.current_request(now) {
                    request.begin_write();
                    note_effect(&request, &key, effect);
                    request.end_call();
                }
            }
        }
    }

    fn record_read(&mut self, key: &[u8], effect: Effect, now: Instant) -> RecordedRead {
        self.counts.reads += 1;
        RecordedRead(self.current_request(now).map(|request| {
            let recorded_reads = request.begin_read([(key, None)]);
            note_effect(&request, key, effect);
            request.end_call();
            (request, recorded_reads)
        }))
    }

    /// The request under way, or a new one after a pause; `None` if it is not recorded.
    fn current_request(&mut self, now: Instant) -> Option<Request> {
        let is_over =
            |last_active_at: Instant| now.duration_since(last_active_at) >= self.request_gap;
        if self.last_active_at.is_none_or(is_over) {
            self.finish();
            self.request = self.recorder.begin_request();
            self.last_active_at = Some(now);
        }
        self.request.clone()
    }

    fn finish(&mut self) {
        if let Some(request) = self.request.take() {
            request.finish();
        }
    }

    fn await_reply(&mut self, pending_reply: PendingReply) {
        if self.pending_replies.len() == PENDING_REPLIES_MAX {
            self.pending_replies.pop_front();
        }
        self.pending_replies.push_back(pending_reply);
    }

    /// Adds the size of the value in a reply. Replies come in the order of their commands.
    fn handle_reply(&mut self, event: &ReplyEvent) {
        let is_reply_to = |pending_reply: &PendingReply| match (event, pending_reply) {
            (ReplyEvent::Value(key, _), PendingReply::Value(expected_key, _)) => {
                key == expected_key
            }
            (ReplyEvent::End, PendingReply::End) | (ReplyEvent::Noop, PendingReply::Noop) => true,
            (ReplyEvent::MetaMiss, PendingReply::MetaValue(get, _)) => !get.is_quiet,
            (ReplyEvent::MetaValue { opaque, key, .. }, PendingReply::MetaValue(get, _)) => {
                opaque.as_ref().is_none_or(|opaque| *opaque == get.opaque)
                    && key.as_ref().is_none_or(|key| *key == get.key)
            }
            _ => false,
        };
        let Some(position) = self.pending_replies.iter().position(is_reply_to) else {
            return;
        };
        // What was awaited before has no reply: a miss.
        let pending_reply = self.pending_replies.drain(..=position).next_back();
        match (event, pending_reply) {
            (ReplyEvent::Value(_, value_bytes), Some(PendingReply::Value(_, read)))
            | (ReplyEvent::MetaValue { value_bytes, .. }, Some(PendingReply::MetaValue(_, read))) =>
            {
                read.set_size(*value_bytes);
            }
            _ => {}
        }
    }
}

/// Notes the TTL that a command gives its item, and that it changes it in place.
fn note_effect(request: &Request, key: &[u8], effect: Effect) {
    if let Some(ttl_s) = effect.ttl_s {
        request.note_ttl(key, ttl_s);
    }
    if effect.is_change {
        request.note_changed_key(key);
    }
}

impl Drop for ConnectionRecorder {
    fn drop(&mut self) {
        self.finish();
        self.recorder.close();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use glasscache_record::{Options, read_folder};
    use glasscache_sim::trace::log::RequestLog;

    use super::*;

    const GAP: Duration = Duration::from_millis(50);

    /// A connection whose bytes come at given times after its begin, and its log.
    struct TestConnection {
        folder: tempfile::TempDir,
        connection_recorder: ConnectionRecorder,
        started_at: Instant,
    }

    impl TestConnection {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let options = Options { has_base: false, ..Options::new(folder.path()) };
            Self {
                connection_recorder: ConnectionRecorder::new(Recorder::open(options).unwrap(), GAP),
                folder,
                started_at: Instant::now(),
            }
        }

        fn client_sends(&mut self, at_ms: u64, bytes: &[u8]) {
            let now = self.started_at + Duration::from_millis(at_ms);
            self.connection_recorder.on_client_bytes(bytes, now);
        }

        fn server_sends(&mut self, at_ms: u64, bytes: &[u8]) {
            let now = self.started_at + Duration::from_millis(at_ms);
            self.connection_recorder.on_server_bytes(bytes, now);
        }

        fn finish_and_read_log(self) -> RequestLog {
            let recorder = self.connection_recorder.recorder.clone();
            drop(self.connection_recorder);
            while !recorder.close() {}
            read_folder(self.folder.path()).unwrap().log
        }
    }

    fn keys_by_request(log: &RequestLog) -> Vec<Vec<&str>> {
        let key = |&item: &u32| log.items.keys[item as usize].as_str();
        let keys_of_request = |request| log.requests.items_of(request).iter().map(key).collect();
        (0..log.requests.len()).map(keys_of_request).collect()
    }

    fn recorded_size(log: &RequestLog, key: &str) -> u32 {
        let item_index = log.items.keys.iter().position(|candidate| candidate == key).unwrap();
        log.items.sizes[item_index]
    }

    fn read_meta_json(folder: &Path) -> String {
        std::fs::read_to_string(folder.join("meta.json")).unwrap()
    }

    #[test]
    fn a_pause_ends_a_request_and_a_slow_reply_does_not() {
        let mut connection = TestConnection::new();
        connection.client_sends(0, b"get a b\r\nget a\r\n");
        connection.server_sends(400, b"VALUE a 0 3\r\nxyz\r\nEND\r\nVALUE a 0 3\r\nxyz\r\nEND\r\n");
        connection.client_sends(449, b"get c\r\n");
        connection.server_sends(450, b"END\r\n");
        connection.client_sends(500, b"get d\r\n");
        let log = connection.finish_and_read_log();
        assert_eq!(keys_by_request(&log), [vec!["a", "b", "a", "c"], vec!["d"]]);
        assert_eq!((recorded_size(&log, "a"), recorded_size(&log, "b")), (3, 0));
    }

    #[test]
    fn ttls_and_keys_that_the_program_modifies_are_in_the_log() {
        let mut connection = TestConnection::new();
        connection.client_sends(0, b"get page\r\nset page 0 60 2\r\nab\r\nget counter\r\n");
        connection.client_sends(1, b"incr counter 1\r\n");
        let log = connection.finish_and_read_log();
        let item = |key| log.items.keys.iter().position(|other| other == key).unwrap() as u32;
        assert_eq!((log.items.ttl_s(item("page")), log.items.ttl_s(item("counter"))), (60, 0));
        assert_eq!(log.items.changed.iter().collect::<Vec<_>>(), ["counter"]);
    }

    #[test]
    fn a_sample_of_the_requests_is_recorded_and_each_of_them_whole() {
        let mut connection = TestConnection::new();
        let options = Options { sample: 0.5, ..Options::new(connection.folder.path()) };
        connection.connection_recorder =
            ConnectionRecorder::new(Recorder::open(options).unwrap(), GAP);
        for request_number in 0..100 {
            connection.client_sends(request_number * 1000, b"get a\r\nget b\r\n");
            connection.client_sends(request_number * 1000 + 10, b"get c\r\n");
        }
        let log = connection.finish_and_read_log();
        let request_keys = keys_by_request(&log);
        assert!((20..80).contains(&request_keys.len()), "{}", request_keys.len());
        assert!(request_keys.iter().all(|keys| *keys == ["a", "b", "c"]));
    }

    #[test]
    fn sizes_are_found_by_key_by_opaque_and_by_order() {
        let mut connection = TestConnection::new();
        connection.client_sends(0, b"mg a v O1 q\r\nmg b v O2 q\r\nmn\r\nmg c v k\r\nmg d v\r\nmg e v\r\nmg YQ== v b k\r\n");
        connection.client_sends(1, b"set x 0 0 2\r\nab\r\nstats\r\nget f g\r\n");
        connection
            .server_sends(2, b"VA 4 O2\r\nabcd\r\nMN\r\nVA 1 kc\r\nx\r\nEN\r\nVA 2\r\nxy\r\n");
        connection.server_sends(3, b"VA 7 kYQ== b\r\n1234567\r\nSTORED\r\nSTAT pid 1\r\nEND\r\nVALUE g 0 5\r\n12345\r\nEND\r\n");
        assert!(connection.connection_recorder.pending_replies.is_empty());
        let counts = ConnectionCounts { reads: 8, writes: 1 };
        assert_eq!(connection.connection_recorder.counts, counts);
        let folder = connection.folder.path().to_owned();
        let recorder = connection.connection_recorder.recorder.clone();
        drop(connection.connection_recorder);
        while !recorder.close() {}
        let log = read_folder(&folder).unwrap().log;
        assert_eq!(keys_by_request(&log), [vec!["a", "b", "c", "d", "e", "a", "f", "g"]]);
        let sizes = ["a", "b", "c", "d", "e", "f", "g"].map(|key| recorded_size(&log, key));
        assert_eq!(sizes, [7, 4, 1, 0, 2, 0, 5]);
        assert_eq!(log.requests.base_times_us, [0]);
        let meta_json = read_meta_json(&folder);
        assert!(
            meta_json.contains("\"has_base_us\": false") && meta_json.contains("\"writes\": 1"),
            "{meta_json}"
        );
    }
}
