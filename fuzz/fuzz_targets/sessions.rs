//! Two sessions on one store, their bytes interleaved in random pieces, beside a witness whose values must be its own.
//!
//! The strangers may evict, flush or delete what the witness stored, which it then misses; what it finds must be what it
//! wrote last. Its values are small, or uploads that are under way while the strangers go on.

#![no_main]

use std::cell::RefCell;

use glasscache_server::{Config, Replay};
use libfuzzer_sys::fuzz_target;

/// The longest unfinished command: a value below the upload size and its line.
const PENDING_MAX: usize = (64 << 10) + 4096;

/// Larger than what is received in one piece, so that it is written where it will lie.
const UPLOAD_BYTES: usize = 100_000;

/// A key that no stranger guesses.
const KEY: &str = "witness-5f0c1d7a9b3e";

struct Witness {
    session: Replay,
    /// What was acknowledged last; nothing after a delete or a miss.
    value: Option<Vec<u8>>,
    serial: u64,
    /// It waits for room that a stranger's unfinished upload has.
    is_waiting: bool,
}

impl Witness {
    fn send(&mut self, request: &[u8], now: u32) -> Vec<u8> {
        assert!(!self.session.is_closed(), "the witness was closed");
        self.session.feed(request, now)
    }

    fn make(&mut self, bytes: usize) -> Vec<u8> {
        self.serial += 1;
        let serial = self.serial;
        (0..bytes as u64).map(|at| (serial.wrapping_mul(at + 77) >> 3) as u8).collect()
    }

    /// Begins to store a value; `rest` of it is sent by `finish`.
    fn begin(&mut self, bytes: usize, now: u32) -> (Vec<u8>, Vec<u8>) {
        let value = self.make(bytes);
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
            other => panic!("a set was answered {:?}", String::from_utf8_lossy(other)),
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
        let value = self.make(300);
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
    strangers: [Replay; 2],
    witness: Witness,
}

fn group() -> Group {
    let config = Config {
        hash_seed: Some(1),
        memory_bytes: 4 << 20,
        debug: false,
        ..Config::default()
    };
    let mut sessions = Replay::group(config, 3).expect("memory for a small store");
    let mut next = || sessions.pop().expect("three sessions");
    Group {
        now: 10,
        strangers: [next(), next()],
        witness: Witness { session: next(), value: None, serial: 0, is_waiting: false },
    }
}

thread_local! {
    static BUSY: RefCell<Option<Group>> = const { RefCell::new(None) };
}

fuzz_target!(|input: &[u8]| {
    let Some((steps, streams)) = input.split_first_chunk::<8>() else { return };
    // Stores are dear to make: one serves until a stranger is closed or left in the middle of a command.
    let mut group = BUSY.take().unwrap_or_else(group);
    let (first, second) = streams.split_at(streams.len() / 2);
    let mut rests = [first, second];
    let mut upload = None;
    for (step, number) in steps.iter().cycle().zip(1_u32..) {
        group.now += u32::from(number.is_multiple_of(64));
        let now = group.now;
        // The other one where this one has said everything, so that the loop ends.
        let chosen = usize::from(step & 1);
        let which = if rests[chosen].is_empty() { 1 - chosen } else { chosen };
        let (piece, tail) = rests[which].split_at(usize::from(step >> 1).max(1).min(rests[which].len()));
        rests[which] = tail;
        group.strangers[which].feed(piece, now);
        assert!(group.strangers[which].pending_bytes() <= PENDING_MAX);
        let witness = &mut group.witness;
        match (step >> 1 & 7, upload.take()) {
            (_, Some(begun)) => witness.finish(begun, now),
            (0, None) => upload = Some(witness.begin(UPLOAD_BYTES, now)),
            (1, None) => upload = Some(witness.begin(100, now)),
            (2, None) => witness.append(now),
            (3, None) => witness.delete(now),
            (_, None) => witness.read(now),
        }
        if witness.is_waiting {
            return;
        }
        if rests.iter().all(|rest| rest.is_empty()) {
            break;
        }
    }
    if let Some(begun) = upload {
        group.witness.finish(begun, group.now);
        if group.witness.is_waiting {
            return;
        }
    }
    group.witness.read(group.now);
    let is_between = |session: &Replay| !session.is_closed() && session.pending_bytes() == 0;
    if group.strangers.iter().all(is_between) {
        BUSY.set(Some(group));
    }
});
