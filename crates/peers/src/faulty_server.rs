//! A scripted server with faulty replies: wrong, late or incomplete. Each value contains its key.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::connection::Connection;
use crate::peer::Peer;

macro_rules! behaviours {
    ($(#[$doc:meta] $name:ident,)*) => {
        /// How the server replies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Behaviour {
            /// Correctly.
            Correct,
            $(#[$doc] $name,)*
        }

        /// Every way to fail.
        pub const BEHAVIOURS: &[Behaviour] = &[$(Behaviour::$name,)*];
    };
}

behaviours! {
    /// Not until the behaviour changes.
    Hang,
    /// After [`LATE_REPLY_DELAY`].
    Late,
    /// With the first half, and then as [`Behaviour::Hang`].
    HalfThenHang,
    /// With the first half, and then it closes.
    HalfThenClose,
    /// It closes instead.
    Close,
    /// Byte by byte, with pauses.
    Trickle,
    /// Bytes that belong to no protocol come first.
    Garbage,
    /// Values have another key.
    WrongKey,
    /// With the reply to the previous request.
    PreviousReply,
    /// The reply is sent twice.
    Twice,
    /// A value that was not requested comes first.
    Unsolicited,
    /// The length of the first value is too large.
    LengthTooLarge,
    /// Its length is too small.
    LengthTooSmall,
    /// Its length is 2 GB too large.
    LengthTwoGigabytes,
    /// The last line of values is missing.
    MissingEnd,
    /// `ERROR`.
    ErrorLine,
    /// An error of the server.
    ServerError,
    /// A line that does not end.
    EndlessLine,
    /// With the opaque of another request.
    OtherOpaque,
    /// With the first three quarters, and then it closes.
    ThreeQuartersThenClose,
}

/// How late [`Behaviour::Late`] is.
pub const LATE_REPLY_DELAY: Duration = Duration::from_millis(400);

/// The only correct value of a key.
pub fn value_of(key: &str) -> Vec<u8> {
    format!("<{key}>").repeat(12).into_bytes()
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    store: Mutex<HashMap<String, Vec<u8>>>,
    previous_reply: Mutex<Vec<u8>>,
}

/// A peer that replies according to its behaviour; closed when dropped.
pub struct FaultyServer {
    /// Its address as text.
    pub address: String,
    /// Its listener and connections.
    pub peer: Peer,
    shared: Arc<Shared>,
}

impl FaultyServer {
    /// A server without items.
    pub fn start() -> Self {
        Self::with_keys(&[])
    }

    /// A server in which each of these keys has its value.
    pub fn with_keys(keys: &[String]) -> Self {
        let items = keys.iter().map(|key| (key.clone(), value_of(key)));
        let shared = Arc::new(Shared {
            behaviour: Mutex::new(Behaviour::Correct),
            store: Mutex::new(items.collect()),
            previous_reply: Mutex::new(b"END\r\n".to_vec()),
        });
        let shared_by_peer = shared.clone();
        let peer = Peer::start(move |mut connection| shared_by_peer.serve(&mut connection));
        Self { address: peer.address().to_string(), peer, shared }
    }

    /// Changes how it replies, from the next reply on.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        *lock(&self.shared.behaviour) = behaviour;
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        self.set_behaviour(Behaviour::Correct);
        self.peer.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no thread has panicked")
}

impl Shared {
    fn behaviour(&self) -> Behaviour {
        *lock(&self.behaviour)
    }

    fn serve(&self, connection: &mut Connection) -> io::Result<()> {
        loop {
            let line = connection.read_line()?;
            let words: Vec<&str> = line.split_whitespace().collect();
            let opaque = words.iter().skip(1).find(|word| word.starts_with('O'));
            let opaque = opaque.map(|word| format!(" {word}")).unwrap_or_default();
            let reply = match words.as_slice() {
                ["get" | "gets", keys @ ..] => self.format_values(keys),
                ["mn", ..] => {
                    connection.write("MN\r\n")?;
                    continue;
                }
                ["version", ..] => b"VERSION 1.6.45\r\n".to_vec(),
                ["ms", key, length, ..] => {
                    let value_bytes = length.parse().unwrap_or(0);
                    let value = connection.read_exactly(value_bytes)?;
                    connection.read_line()?;
                    lock(&self.store).insert((*key).to_owned(), value);
                    format!("HD{opaque}\r\n").into_bytes()
                }
                ["md", key, ..] => {
                    let was_present = lock(&self.store).remove(*key).is_some();
                    format!("{}{opaque}\r\n", if was_present { "HD" } else { "NF" }).into_bytes()
                }
                _ => b"ERROR\r\n".to_vec(),
            };
            if !words.contains(&"q") && !self.send(connection, &reply)? {
                return Ok(());
            }
        }
    }

    fn format_values(&self, keys: &[&str]) -> Vec<u8> {
        let store = lock(&self.store);
        let mut reply = Vec::new();
        for (key, value) in keys.iter().filter_map(|key| store.get_key_value(*key)) {
            reply.extend(format!("VALUE {key} 7 {}\r\n", value.len()).into_bytes());
            reply.extend_from_slice(value);
            reply.extend_from_slice(b"\r\n");
        }
        reply.extend_from_slice(b"END\r\n");
        reply
    }

    /// Sends a reply according to the behaviour; returns false if the connection is to be closed.
    fn send(&self, connection: &mut Connection, reply: &[u8]) -> io::Result<bool> {
        let previous_reply = std::mem::replace(&mut *lock(&self.previous_reply), reply.to_vec());
        let first_half = &reply[..reply.len() / 2];
        let text = String::from_utf8_lossy(reply).into_owned();
        let behaviour = self.behaviour();
        match behaviour {
            Behaviour::Correct => connection.write(reply)?,
            Behaviour::Hang => return Ok(self.hang(behaviour)),
            Behaviour::Late => {
                thread::sleep(LATE_REPLY_DELAY);
                connection.write(reply)?;
            }
            Behaviour::HalfThenHang => {
                connection.write(first_half)?;
                return Ok(self.hang(behaviour));
            }
            Behaviour::HalfThenClose => {
                connection.write(first_half)?;
                return Ok(false);
            }
            Behaviour::Close => return Ok(false),
            Behaviour::Trickle => {
                for byte in reply {
                    connection.write([*byte])?;
                    thread::sleep(Duration::from_millis(20));
                }
            }
            Behaviour::Garbage => connection.write([&[0xfe; 90][..], b"\r\n", reply].concat())?,
            Behaviour::WrongKey => {
                connection.write(text.replace("VALUE k", "VALUE x"))?;
            }
            Behaviour::PreviousReply => connection.write(&previous_reply)?,
            Behaviour::Twice => connection.write([reply, reply].concat())?,
            Behaviour::Unsolicited => {
                connection.write(b"VALUE other 0 5\r\nother\r\nEND\r\n")?;
                connection.write(reply)?;
            }
            Behaviour::LengthTooLarge => connection.write(change_length(&text, 7))?,
            Behaviour::LengthTooSmall => connection.write(change_length(&text, -7))?,
            Behaviour::LengthTwoGigabytes => {
                connection.write(change_length(&text, 2_000_000_000))?;
            }
            Behaviour::MissingEnd => connection.write(text.replace("END\r\n", ""))?,
            Behaviour::ErrorLine => connection.write(b"ERROR\r\n")?,
            Behaviour::ServerError => connection.write(b"SERVER_ERROR out of memory\r\n")?,
            Behaviour::EndlessLine => {
                for _ in 0..16_000 {
                    connection.write([b'x'; 8192])?;
                }
                return Ok(false);
            }
            Behaviour::OtherOpaque => connection.write(text.replace(" O", " O1"))?,
            Behaviour::ThreeQuartersThenClose => {
                connection.write(&reply[..reply.len() * 3 / 4])?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends nothing until the behaviour changes; returns false, as the connection is then to be closed.
    fn hang(&self, behaviour: Behaviour) -> bool {
        while self.behaviour() == behaviour {
            thread::sleep(Duration::from_millis(2));
        }
        false
    }
}

/// The reply with another length in the header of its first value.
fn change_length(text: &str, change: i64) -> String {
    let value_head = || {
        let (head, after_head) = text.strip_prefix("VALUE ")?.split_once("\r\n")?;
        let (key_and_flags, length) = head.rsplit_once(' ')?;
        let length = length.parse::<i64>().ok()? + change;
        Some(format!("VALUE {key_and_flags} {length}\r\n{after_head}"))
    };
    value_head().unwrap_or_else(|| text.to_owned())
}
