//! A scripted server that misbehaves, hangs and breaks off; its values name their key.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How the server replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Correct,
    Hang,
    Late,
    HalfThenHang,
    HalfThenClose,
    Close,
    /// Byte by byte, with pauses.
    Trickle,
    /// Bytes of no protocol come first.
    Garbage,
    WrongKey,
    /// With the reply to the request before.
    PreviousReply,
    Twice,
    /// A value that was not requested comes first.
    Unsolicited,
    /// The length of the first value is too large.
    LengthTooLarge,
    LengthTooSmall,
    /// Its length is 2 GB too large.
    LengthTwoGigabytes,
    MissingEnd,
    ErrorLine,
    ServerError,
    EndlessLine,
    OtherOpaque,
    ThreeQuartersThenClose,
}

pub(crate) const BEHAVIOURS: [Behaviour; 20] = [
    Behaviour::Hang,
    Behaviour::Late,
    Behaviour::HalfThenHang,
    Behaviour::HalfThenClose,
    Behaviour::Close,
    Behaviour::Trickle,
    Behaviour::Garbage,
    Behaviour::WrongKey,
    Behaviour::PreviousReply,
    Behaviour::Twice,
    Behaviour::Unsolicited,
    Behaviour::LengthTooLarge,
    Behaviour::LengthTooSmall,
    Behaviour::MissingEnd,
    Behaviour::ErrorLine,
    Behaviour::ServerError,
    Behaviour::EndlessLine,
    Behaviour::LengthTwoGigabytes,
    Behaviour::OtherOpaque,
    Behaviour::ThreeQuartersThenClose,
];

/// How late [`Behaviour::Late`] is.
pub(crate) const LATE_REPLY_DELAY: Duration = Duration::from_millis(400);

/// The only right value of a key.
pub(crate) fn value_of(key: &str) -> Vec<u8> {
    format!("<{key}>").repeat(12).into_bytes()
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    is_listening: AtomicBool,
    /// Connections that are open at this moment.
    open_connections: AtomicUsize,
    accepted_connections: AtomicUsize,
    store: Mutex<HashMap<String, Vec<u8>>>,
    previous_reply: Mutex<Vec<u8>>,
    streams: Mutex<Vec<TcpStream>>,
}

/// A listener on a free port, which replies by its behaviour.
pub(crate) struct FaultyServer {
    pub(crate) address: String,
    shared: Arc<Shared>,
}

impl FaultyServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            behaviour: Mutex::new(Behaviour::Correct),
            is_listening: AtomicBool::new(true),
            open_connections: AtomicUsize::new(0),
            accepted_connections: AtomicUsize::new(0),
            store: Mutex::default(),
            previous_reply: Mutex::new(b"END\r\n".to_vec()),
            streams: Mutex::default(),
        });
        let shared_with_listener = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if !shared_with_listener.is_listening.load(Ordering::SeqCst) {
                    return;
                }
                let shared = shared_with_listener.clone();
                stream.set_nodelay(true).unwrap();
                shared.accepted_connections.fetch_add(1, Ordering::SeqCst);
                shared.open_connections.fetch_add(1, Ordering::SeqCst);
                shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = shared.serve(&stream); // an error ends the connection
                    let _ = stream.shutdown(Shutdown::Both);
                    shared.open_connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, shared }
    }

    pub(crate) fn with_keys(keys: &[String]) -> Self {
        let server = Self::start();
        let mut store = server.shared.store.lock().unwrap();
        store.extend(keys.iter().map(|key| (key.clone(), value_of(key))));
        drop(store);
        server
    }

    pub(crate) fn set_behaviour(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock().unwrap() = behaviour;
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.shared.open_connections.load(Ordering::SeqCst)
    }

    pub(crate) fn accepted_connections(&self) -> usize {
        self.shared.accepted_connections.load(Ordering::SeqCst)
    }

    /// Closes what is connected, as a restart does.
    pub(crate) fn drop_connections(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both); // some are closed already
        }
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        self.shared.is_listening.store(false, Ordering::SeqCst);
        self.set_behaviour(Behaviour::Correct);
        self.drop_connections();
        let _ = TcpStream::connect(&self.address); // wakes the listener, which then ends
    }
}

impl Shared {
    fn behaviour(&self) -> Behaviour {
        *self.behaviour.lock().unwrap()
    }

    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let opaque = words.iter().skip(1).find(|word| word.starts_with('O'));
            let opaque = opaque.map(|word| format!(" {word}")).unwrap_or_default();
            let is_quiet = words.contains(&"q");
            let reply = match words.as_slice() {
                ["get" | "gets", keys @ ..] => {
                    let store = self.store.lock().unwrap();
                    let mut reply = Vec::new();
                    for (key, value) in keys.iter().filter_map(|key| store.get_key_value(*key)) {
                        reply.extend(format!("VALUE {key} 7 {}\r\n", value.len()).into_bytes());
                        reply.extend_from_slice(value);
                        reply.extend_from_slice(b"\r\n");
                    }
                    reply.extend_from_slice(b"END\r\n");
                    reply
                }
                ["mn", ..] => {
                    (&*stream).write_all(b"MN\r\n")?;
                    continue;
                }
                ["version", ..] => b"VERSION 1.6.45\r\n".to_vec(),
                ["ms", key, length, ..] => {
                    let mut body = vec![0; length.parse::<usize>().unwrap() + 2];
                    reader.read_exact(&mut body)?;
                    body.truncate(body.len() - 2);
                    self.store.lock().unwrap().insert((*key).to_owned(), body);
                    format!("HD{opaque}\r\n").into_bytes()
                }
                ["md", key, ..] => {
                    let was_present = self.store.lock().unwrap().remove(*key).is_some();
                    format!("{}{opaque}\r\n", if was_present { "HD" } else { "NF" }).into_bytes()
                }
                _ => b"ERROR\r\n".to_vec(),
            };
            if !is_quiet && !self.send(stream, &reply)? {
                return Ok(());
            }
        }
    }

    /// Sends a reply by the behaviour; false ends the connection.
    fn send(&self, mut stream: &TcpStream, reply: &[u8]) -> std::io::Result<bool> {
        let previous_reply =
            std::mem::replace(&mut *self.previous_reply.lock().unwrap(), reply.to_vec());
        let first_half = &reply[..reply.len() / 2];
        let text = String::from_utf8_lossy(reply).into_owned();
        let behaviour = self.behaviour();
        match behaviour {
            Behaviour::Correct => stream.write_all(reply)?,
            Behaviour::Hang => return Ok(self.hang(behaviour)),
            Behaviour::Late => {
                thread::sleep(LATE_REPLY_DELAY);
                stream.write_all(reply)?;
            }
            Behaviour::HalfThenHang => {
                stream.write_all(first_half)?;
                return Ok(self.hang(behaviour));
            }
            Behaviour::HalfThenClose => {
                stream.write_all(first_half)?;
                return Ok(false);
            }
            Behaviour::Close => return Ok(false),
            Behaviour::Trickle => {
                for byte in reply {
                    stream.write_all(&[*byte])?;
                    thread::sleep(Duration::from_millis(20));
                }
            }
            Behaviour::Garbage => stream.write_all(&[&[0xfe; 90][..], b"\r\n", reply].concat())?,
            Behaviour::WrongKey => {
                stream.write_all(text.replace("VALUE k", "VALUE x").as_bytes())?;
            }
            Behaviour::PreviousReply => stream.write_all(&previous_reply)?,
            Behaviour::Twice => stream.write_all(&[reply, reply].concat())?,
            Behaviour::Unsolicited => {
                stream.write_all(b"VALUE other 0 5\r\nother\r\nEND\r\n")?;
                stream.write_all(reply)?;
            }
            Behaviour::LengthTooLarge => stream.write_all(change_length(&text, 7).as_bytes())?,
            Behaviour::LengthTooSmall => stream.write_all(change_length(&text, -7).as_bytes())?,
            Behaviour::LengthTwoGigabytes => {
                stream.write_all(change_length(&text, 2_000_000_000).as_bytes())?;
            }
            Behaviour::MissingEnd => stream.write_all(text.replace("END\r\n", "").as_bytes())?,
            Behaviour::ErrorLine => stream.write_all(b"ERROR\r\n")?,
            Behaviour::ServerError => stream.write_all(b"SERVER_ERROR out of memory\r\n")?,
            Behaviour::EndlessLine => {
                for _ in 0..16_000 {
                    stream.write_all(&[b'x'; 8192])?;
                }
                return Ok(false);
            }
            Behaviour::OtherOpaque => stream.write_all(text.replace(" O", " O1").as_bytes())?,
            Behaviour::ThreeQuartersThenClose => {
                stream.write_all(&reply[..reply.len() * 3 / 4])?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends nothing until the behaviour changes, then ends the connection.
    fn hang(&self, behaviour: Behaviour) -> bool {
        while self.behaviour() == behaviour && self.is_listening.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(2));
        }
        false
    }
}

/// The reply with another length in the head of its first value.
fn change_length(text: &str, change: i64) -> String {
    let Some(("VALUE", rest)) = text.split_once(' ') else {
        return text.to_owned();
    };
    let (head, after_head) = rest.split_once("\r\n").unwrap();
    let (key_and_flags, length) = head.rsplit_once(' ').unwrap();
    let length: i64 = length.parse().unwrap();
    format!("VALUE {key_and_flags} {}\r\n{after_head}", length + change)
}

/// Replies to the probe, and to every other line with a miss, until the peer closes.
pub(crate) fn reply_with_misses(stream: impl Read + Write + Copy) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read_bytes| read_bytes > 0) {
        let reply: &[u8] = if line.starts_with("mn") { b"MN\r\n" } else { b"END\r\n" };
        let mut writer = stream;
        writer.write_all(reply).unwrap();
        line.clear();
    }
}
