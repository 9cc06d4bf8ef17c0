//! The cases of `conformance/binary/` against our server, or against a real memcached (`make oracle`).
//!
//! After each step a noop follows, whose response marks the end of the step's responses. If a step ends the
//! connection, the close is the end. Packets are packed here by hand, so that a fault of our codec is seen.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use crate::conformance::{Case, check_cases, find_oracle, parse_version};
use crate::server::{Server, TestConnection};

/// The opaque of the noop behind each step; no case uses it.
const FENCE_OPAQUE: u32 = 0xfeed_face;
const HEADER_BYTES: usize = 24;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    send: Vec<Packet>,
    receive: Vec<Packet>,
}

/// A packet as a case describes it; what is left out is 0 or empty.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Packet {
    op: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    opaque: u32,
    #[serde(default)]
    cas: Cas,
    #[serde(default)]
    status: u16,
    flags: Option<u32>,
    exptime: Option<u32>,
    delta: Option<u64>,
    initial: Option<u64>,
    number: Option<u64>,
    magic: Option<u8>,
    /// Lengths in the header, where they are not the true ones.
    key_bytes: Option<u16>,
    extras_bytes: Option<u8>,
    body_bytes: Option<u32>,
}

/// A CAS unique: a number, or a name for one that the server chose.
#[derive(Deserialize)]
#[serde(untagged)]
enum Cas {
    Number(u64),
    Name(String),
}

impl Default for Cas {
    fn default() -> Cas {
        Cas::Number(0)
    }
}

/// A packet that was received.
#[derive(Debug, PartialEq, Eq)]
struct ReceivedPacket {
    opcode: u8,
    status: u16,
    opaque: u32,
    cas: u64,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
}

#[test]
fn every_case_of_the_binary_protocol_gets_the_expected_responses() {
    let server = match find_oracle() {
        Some(path) => Server::memcached(&path),
        None => Server::start(&["-m", "64"]),
    };
    let peer_version = parse_version(&server.connect().request("version\r\n"));
    check_cases("binary", 3, &peer_version, |case| run_case(&server, case));
}

fn run_case(server: &Server, case: &Case<Step>) -> Result<(), String> {
    let mut connection = server.connect();
    let mut uniques = HashMap::new();
    let flush = Packet::of_opcode("flush");
    connection.send(&flush.to_bytes(&uniques));
    receive_packet(&mut connection);
    for (step_index, step) in case.steps.iter().enumerate() {
        let is_closing = case.closes && step_index + 1 == case.steps.len();
        let mut request: Vec<u8> =
            step.send.iter().flat_map(|packet| packet.to_bytes(&uniques)).collect();
        if !is_closing {
            let mut fence = Packet::of_opcode("noop");
            fence.opaque = FENCE_OPAQUE;
            request.extend(fence.to_bytes(&uniques));
        }
        connection.send(&request);
        for expected in &step.receive {
            let received = receive_packet(&mut connection);
            expected.match_response(&received, &mut uniques).map_err(|difference| {
                format!(
                    "  step {step_index}, {}: {difference}\n  received {received:?}",
                    expected.op
                )
            })?;
        }
        if is_closing {
            return if connection.is_closed() {
                Ok(())
            } else {
                Err("the server does not close".to_owned())
            };
        }
        let fence_response = receive_packet(&mut connection);
        if fence_response.opaque != FENCE_OPAQUE {
            return Err(format!("  step {step_index}: an additional response {fence_response:?}"));
        }
    }
    Ok(())
}

fn receive_packet(connection: &mut TestConnection) -> ReceivedPacket {
    let header = connection.read_exactly(HEADER_BYTES);
    let read_number = |range: std::ops::Range<usize>| {
        header[range].iter().fold(0u64, |number, byte| (number << 8) | u64::from(*byte))
    };
    assert_eq!(header[0], 0x81, "not a response: {header:?}");
    let body = connection.read_exactly(read_number(8..12) as usize);
    let extras_bytes = usize::from(header[4]);
    let key_end = extras_bytes + read_number(2..4) as usize;
    ReceivedPacket {
        opcode: header[1],
        status: read_number(6..8) as u16,
        opaque: read_number(12..16) as u32,
        cas: read_number(16..24),
        extras: body[..extras_bytes].to_vec(),
        key: body[extras_bytes..key_end].to_vec(),
        value: body[key_end..].to_vec(),
    }
}

impl Packet {
    fn of_opcode(op: &str) -> Packet {
        toml::from_str(&format!("op = {op:?}")).unwrap()
    }

    fn opcode(&self) -> u8 {
        let names = BTreeMap::from(OPCODES);
        match names.get(self.op.as_str()) {
            Some(opcode) => *opcode,
            None => u8::from_str_radix(self.op.trim_start_matches("0x"), 16)
                .unwrap_or_else(|_| panic!("{} is not an opcode", self.op)),
        }
    }

    /// The extras in the order in which each opcode has its own.
    fn extras(&self) -> Vec<u8> {
        let mut extras = Vec::new();
        extras.extend(self.flags.iter().flat_map(|number| number.to_be_bytes()));
        extras.extend(self.delta.iter().flat_map(|number| number.to_be_bytes()));
        extras.extend(self.initial.iter().flat_map(|number| number.to_be_bytes()));
        extras.extend(self.exptime.iter().flat_map(|number| number.to_be_bytes()));
        extras
    }

    fn value(&self) -> Vec<u8> {
        match self.number {
            Some(number) => number.to_be_bytes().to_vec(),
            None => to_bytes_of_text(&self.value),
        }
    }

    fn to_bytes(&self, uniques: &HashMap<String, u64>) -> Vec<u8> {
        let (extras, key, value) = (self.extras(), to_bytes_of_text(&self.key), self.value());
        let cas = match &self.cas {
            Cas::Number(number) => *number,
            Cas::Name(name) => uniques[name],
        };
        let body_length = (extras.len() + key.len() + value.len()) as u32;
        let mut packet = vec![self.magic.unwrap_or(0x80), self.opcode()];
        packet.extend(self.key_bytes.unwrap_or(key.len() as u16).to_be_bytes());
        packet.extend([self.extras_bytes.unwrap_or(extras.len() as u8), 0, 0, 0]);
        packet.extend(self.body_bytes.unwrap_or(body_length).to_be_bytes());
        packet.extend(self.opaque.to_be_bytes());
        packet.extend(cas.to_be_bytes());
        packet.extend([extras, key, value].concat());
        packet
    }

    fn match_response(
        &self,
        received: &ReceivedPacket,
        uniques: &mut HashMap<String, u64>,
    ) -> Result<(), String> {
        let cas = match &self.cas {
            Cas::Number(number) => *number,
            Cas::Name(name) => *uniques.entry(name.clone()).or_insert(received.cas),
        };
        if matches!(self.cas, Cas::Name(_)) && received.cas == 0 {
            return Err("the CAS unique is 0".to_owned());
        }
        let expected = ReceivedPacket {
            opcode: self.opcode(),
            status: self.status,
            opaque: self.opaque,
            cas,
            extras: self.extras(),
            key: to_bytes_of_text(&self.key),
            value: self.value(),
        };
        if expected == *received { Ok(()) } else { Err(format!("expected {expected:?}")) }
    }
}

/// The bytes of a text; `{k*251}` stands for 251 letters.
fn to_bytes_of_text(text: &str) -> Vec<u8> {
    crate::conformance::expand_repetitions(text).into_bytes()
}

/// The names that cases give to opcodes.
const OPCODES: [(&str, u8); 36] = [
    ("get", 0x00),
    ("set", 0x01),
    ("add", 0x02),
    ("replace", 0x03),
    ("delete", 0x04),
    ("incr", 0x05),
    ("decr", 0x06),
    ("quit", 0x07),
    ("flush", 0x08),
    ("getq", 0x09),
    ("noop", 0x0a),
    ("version", 0x0b),
    ("getk", 0x0c),
    ("getkq", 0x0d),
    ("append", 0x0e),
    ("prepend", 0x0f),
    ("stat", 0x10),
    ("setq", 0x11),
    ("addq", 0x12),
    ("replaceq", 0x13),
    ("deleteq", 0x14),
    ("incrq", 0x15),
    ("decrq", 0x16),
    ("quitq", 0x17),
    ("flushq", 0x18),
    ("appendq", 0x19),
    ("prependq", 0x1a),
    ("verbosity", 0x1b),
    ("touch", 0x1c),
    ("gat", 0x1d),
    ("gatq", 0x1e),
    ("sasl_list", 0x20),
    ("sasl_auth", 0x21),
    ("sasl_step", 0x22),
    ("gatk", 0x23),
    ("gatkq", 0x24),
];
