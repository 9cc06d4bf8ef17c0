//! Two sessions on one store, their bytes interleaved in random pieces, beside a client whose values are checked.
//!
//! The random sessions may evict, flush or delete what the checked client stored, which it then misses; what it finds must
//! be what it wrote last. Its values are small, or uploads that are under way while the random sessions go on.

#![no_main]

use std::cell::RefCell;

use glasscache_server::{Config, InMemorySession};
use libfuzzer_sys::fuzz_target;

/// The longest unfinished command: a value below the upload size and its line.
const PENDING_MAX: usize = (64 << 10) + 4096;

/// Larger than what is received in one piece, so that it is received directly into the store.
const UPLOAD_BYTES: usize = 100_000;

/// A key that no random session guesses.
const KEY: &str = "witness-5f0c1d7a9b3e";

struct CheckedClient {
    session: InMemorySession,
    /// What was acknowledged last; nothing after a delete or a miss.
    value: Option<Vec<u8>>,
    serial: u64,
    /// It waits for memory that an unfinished upload of a random session holds.
    is_waiting: bool,
}

impl CheckedClient {
    fn send(&mut self, request: &[u8], now: u32) -> Vec<u8> {
        assert!(!self.session.is_closed(), "the checked client was closed");
        self.session.feed(request, now)
    }

    fn new_value(&mut self, bytes: usize) -> Vec<u8> {
        self.serial += 1;
        let serial = self.serial;
        (0..bytes as u64).map(|at| (serial.wrapping_mul(at + 77) >> 3) as u8).collect()
    }

    /// Begins to store a value; `rest` of it is sent by `finish`.
    fn begin(&mut self, bytes: usize, now: u32) -> (Vec<u8>, Vec<u8>) {
        let value = self.new_value(bytes);
        let half = value.len() / 2;
        let head = format!("set {KEY} 7 0 {}\r\n", value.len());
        let reply = self.send(&[head.as_bytes(), &value[..half]].concat(), now);
        assert!(reply.is_empty() || reply.starts_with(b"SERVER_ERROR"), "{reply:?}");
        (reply, value)
    }

    fn finish(&mut self, (mut reply, value): (Vec<u8>, Vec<u8>), now: u32) {
        let rest = [&value[value.len() / 2..], b"\r\n"].concat();
        reply.extend(self.send(&rest, now));
        match reply.as_slice() {
            b"STORED\r\n" => self.value = Some(value),
            b"" => self.is_waiting = true,
            // Refused: the earlier value may have gone.
            refused if refused.starts_with(b"SERVER_ERROR") => self.read(now),
            other => panic!("a set had the reply {:?}", String::from_utf8_lossy(other)),
        }
    }

    fn read(&mut self, now: u32) {
        let reply = self.send(format!("get {KEY}\r\n").as_bytes(), now);
        if reply == b"END\r\n" {
            self.value = None;
            return;
        }
        let value = self.value.as_ref().expect("a hit of what was missed or deleted");
        let head = format!("VALUE {KEY} 7 {}\r\n", value.len());
        assert_eq!(reply, [head.as_bytes(), value, b"\r\nEND\r\n"].concat());
    }

    fn append(&mut self, now: u32) {
        let value = self.new_value(300);
        let head = format!("append {KEY} 0 0 {}\r\n", value.len());
        let reply = self.send(&[head.as_bytes(), &value, b"\r\n"].concat(), now);
        match (reply.as_slice(), &mut self.value) {
            (b"STORED\r\n", Some(before)) => before.extend_from_slice(&value),
            (b"STORED\r\n", None) => panic!("appended to what was missed or deleted"),
            (b"NOT_STORED\r\n", value) => *value = None,
            _ => self.read(now),
        }
    }

    fn delete(&mut self, now: u32) {
        let reply = self.send(format!("delete {KEY}\r\n").as_bytes(), now);
        assert!(reply == b"DELETED\r\n" || reply == b"NOT_FOUND\r\n");
        self.value = None;
    }
}

struct Group {
    now: u32,
    random_sessions: [InMemorySession; 2],
    checked_client: CheckedClient,
}

fn new_group() -> Group {
    let config =
        Config { hash_seed: Some(1), memory_bytes: 4 << 20, debug: false, ..Config::default() };
    let mut sessions = InMemorySession::group(config, 3).expect("memory for a small store");
    let mut next = || sessions.pop().expect("three sessions");
    Group {
        now: 10,
        random_sessions: [next(), next()],
        checked_client: CheckedClient {
            session: next(),
            value: None,
            serial: 0,
            is_waiting: false,
        },
    }
}

thread_local! {
    static REUSED_SERVER: RefCell<Option<Group>> = const { RefCell::new(None) };
}

fuzz_target!(|input: &[u8]| {
    let Some((steps, streams)) = input.split_first_chunk::<8>() else { return };
    // Making a store takes long: one serves until a random session is closed or left in the middle of a command.
    let mut group = REUSED_SERVER.take().unwrap_or_else(new_group);
    let (first, second) = streams.split_at(streams.len() / 2);
    let mut rests = [first, second];
    let mut upload = None;
    for (step, number) in steps.iter().cycle().zip(1_u32..) {
        group.now += u32::from(number.is_multiple_of(64));
        let now = group.now;
        // The other one if this one has sent everything, so that the loop ends.
        let chosen_session = usize::from(step & 1);
        let index =
            if rests[chosen_session].is_empty() { 1 - chosen_session } else { chosen_session };
        let (piece, tail) =
            rests[index].split_at(usize::from(step >> 1).max(1).min(rests[index].len()));
        rests[index] = tail;
        group.random_sessions[index].feed(piece, now);
        assert!(group.random_sessions[index].pending_bytes() <= PENDING_MAX);
        let checked_client = &mut group.checked_client;
        match (step >> 1 & 7, upload.take()) {
            (_, Some(begun_upload)) => checked_client.finish(begun_upload, now),
            (0, None) => upload = Some(checked_client.begin(UPLOAD_BYTES, now)),
            (1, None) => upload = Some(checked_client.begin(100, now)),
            (2, None) => checked_client.append(now),
            (3, None) => checked_client.delete(now),
            (_, None) => checked_client.read(now),
        }
        if checked_client.is_waiting {
            return;
        }
        if rests.iter().all(|rest| rest.is_empty()) {
            break;
        }
    }
    if let Some(begun_upload) = upload {
        group.checked_client.finish(begun_upload, group.now);
        if group.checked_client.is_waiting {
            return;
        }
    }
    group.checked_client.read(group.now);
    let is_between =
        |session: &InMemorySession| !session.is_closed() && session.pending_bytes() == 0;
    if group.random_sessions.iter().all(is_between) {
        REUSED_SERVER.set(Some(group));
    }
});
