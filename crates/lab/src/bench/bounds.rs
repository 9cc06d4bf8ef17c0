//! The promises that are no ratios: nothing refused, nothing late, nothing beyond the budget.
//!
//! Each check starts a glasscache of its own, does what users do to it, and reports figures beside the bound
//! they have to keep.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::memory::{FillSize, fill};
use super::scenario::Scenario;
use super::speed::drive;
use super::{Error, Sides};
use crate::load::{
    self, Batch, Dice, Fill, Outcome, Plan, Pool, Size, Step, Tally, Values, Work, key_text,
};
use crate::proc::Meter;
use crate::target::{Server, ask};

/// `-m` of most checks.
const MEMORY_MIB: u64 = 64;

/// A figure beside its bound.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What was done.
    pub what: String,
    /// What must not be exceeded.
    pub at_most: f64,
    /// What was found.
    pub found: f64,
    /// The unit, and what else a reader should know.
    pub note: String,
}

impl Finding {
    fn new(what: &str, at_most: f64, found: f64, note: impl Into<String>) -> Self {
        Self {
            what: what.to_owned(),
            at_most,
            found,
            note: note.into(),
        }
    }

    /// Whether the bound is kept.
    pub fn is_met(&self) -> bool {
        self.found <= self.at_most
    }
}

/// The budget of a server: 1.02 x `-m` + 16 MiB, in MiB.
pub fn budget_mib(memory_mib: u64) -> f64 {
    1.02 * memory_mib as f64 + 16.0
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// An empty server with a gigabyte.
pub fn empty(sides: &Sides) -> Result<Vec<Finding>, Error> {
    let server = sides.ours(1024).start().map_err(Error::Start)?;
    let found = mib(server.resident_bytes());
    Ok(vec![Finding::new(
        "empty server at -m 1024",
        8.0,
        found,
        "MiB resident",
    )])
}

/// Appends, increments and touches of one key, beside plain sets.
pub fn one_key(sides: &Sides) -> Result<Vec<Finding>, Error> {
    let server = sides.ours(MEMORY_MIB).start().map_err(Error::Start)?;
    let mut findings = Vec::new();
    let set = |bytes: usize| line("set", "one", bytes);
    let calm = repeat(sides, &server, &set(32), 300_000)?;
    let long = repeat(sides, &server, &set(50_000), 10_000)?;
    let note = |tally: &Tally, base: &Tally, of: &str| {
        format!(
            "p99 over that of {of} ({:.0} / {:.0} us); {} refused",
            tally.latency_us(99.0),
            base.latency_us(99.0),
            tally.refused
        )
    };
    for (what, first, then, count) in [
        (
            "10,000 appends of 10 B to one key",
            set(1),
            line("append", "one", 10),
            10_000,
        ),
        (
            "1 M increments of one key",
            b"set one 0 0 1\r\n1".to_vec(),
            b"incr one 1".to_vec(),
            1_000_000,
        ),
        (
            "1 M touches of one key",
            set(32),
            b"touch one 100".to_vec(),
            1_000_000,
        ),
    ] {
        repeat(sides, &server, &first, 1)?;
        let tally = repeat(sides, &server, &then, count)?;
        let ratio = tally.latency_us(99.0) / calm.latency_us(99.0);
        findings.push(Finding::new(
            what,
            2.0,
            ratio,
            note(&tally, &calm, "32 B sets"),
        ));
        if count == 10_000 {
            let ratio = tally.latency_us(99.0) / long.latency_us(99.0);
            findings.push(Finding::new(
                what,
                2.0,
                ratio,
                note(&tally, &long, "sets of half its length"),
            ));
        }
        let refused = tally.refused as f64;
        findings.push(Finding::new(what, 0.0, refused, "refused"));
        let resident = mib(server.resident_bytes());
        findings.push(Finding::new(
            what,
            budget_mib(MEMORY_MIB),
            resident,
            "MiB resident at -m 64",
        ));
    }
    Ok(findings)
}

/// `<verb> <key> 0 0 <bytes>` with its value, without the last line end.
fn line(verb: &str, key: &str, bytes: usize) -> Vec<u8> {
    let mut line = format!("{verb} {key} 0 0 {bytes}\r\n").into_bytes();
    line.resize(line.len() + bytes, b'x');
    line
}

/// Sends one line over and over on 8 connections.
fn repeat(sides: &Sides, server: &Server, line: &[u8], count: u64) -> Result<Tally, Error> {
    let plan = Plan {
        connections: 8,
        cpus: sides.pins(&sides.layout.reader().generator),
        stop: sides.stop.clone(),
        ..Plan::new(server.address)
    };
    let work = Repeat {
        line: line.to_vec(),
        left: count,
    };
    let (report, _) =
        load::run(&plan, vec![work], &server.meter()).map_err(Error::load(server.name))?;
    Ok(report.tally)
}

struct Repeat {
    line: Vec<u8>,
    left: u64,
}

impl Work for Repeat {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> Step {
        if self.left == 0 {
            return Step::Finished;
        }
        self.left -= 1;
        batch.line(0, &self.line);
        Step::Sent
    }

    fn write_key(&self, _id: u64, _text: &mut Vec<u8>) {}

    fn value(&self, _id: u64) -> &[u8] {
        &[]
    }

    fn done(&mut self, _connection: usize, _id: u64, _outcome: Outcome) {}
}

/// Memory filled with items of 1,000 different TTLs; then one key of each, watched to its last second.
pub fn ttls(sides: &Sides) -> Result<Vec<Finding>, Error> {
    let mut spawn = sides.ours(MEMORY_MIB);
    spawn
        .environment
        .push(("MEMCACHED_DEBUG".to_owned(), "1".to_owned()));
    let server = spawn.start().map_err(Error::Start)?;
    let mut dice = Dice::new(11);
    let mut ttls: Vec<u32> = (0..1000)
        .map(|_| 1 + dice.below(30 * 86_400) as u32)
        .collect();
    let values = Values::new(Size::Fixed(230), 1);
    let keys = 3 * (MEMORY_MIB << 20) / 250;
    let plan = Plan {
        connections: 8,
        depth: 64,
        stop: sides.stop.clone(),
        ..Plan::new(server.address)
    };
    let work = Expiring {
        next: 0,
        keys,
        ttls: ttls.clone(),
        values,
        refused: 0,
    };
    let (_, works) =
        load::run(&plan, vec![work], &server.meter()).map_err(Error::load(server.name))?;
    let refused: u64 = works.iter().map(|work| work.refused).sum();
    let resident = mib(server.resident_bytes());
    ttls.sort_unstable();
    let late =
        watch_expiry(&server, &ttls).map_err(|error| Error::load(server.name)(error.into()))?;
    let what = "1,000 TTLs, 1 s to 30 d";
    let after = mib(server.resident_bytes());
    Ok(vec![
        Finding::new(
            what,
            0.0,
            late as f64,
            "of 1,000 keys not gone within their second, or too early",
        ),
        Finding::new(
            what,
            0.0,
            refused as f64,
            "sets refused while memory is full",
        ),
        Finding::new(
            what,
            budget_mib(MEMORY_MIB),
            resident.max(after),
            "MiB resident at -m 64",
        ),
    ])
}

struct Expiring {
    next: u64,
    keys: u64,
    ttls: Vec<u32>,
    values: Values,
    refused: u64,
}

impl Work for Expiring {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> Step {
        if self.next == self.keys {
            return Step::Finished;
        }
        let ttl_s = self
            .ttls
            .get(self.next as usize % self.ttls.len().max(1))
            .copied();
        batch.set(self, self.next, ttl_s.unwrap_or(1));
        self.next += 1;
        Step::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&key_text(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.values.of(id)
    }

    fn done(&mut self, _connection: usize, _id: u64, outcome: Outcome) {
        self.refused += u64::from(outcome != Outcome::Stored);
    }
}

/// Sets one key for each TTL, moves the server's clock to the last second of each and one further.
///
/// Returns how many were gone too early or stayed too long. The clock also runs by itself: a key found with
/// `t0` or gone is asked for only while the clock has not moved on, see `seconds_left`.
fn watch_expiry(server: &Server, ttls: &[u32]) -> std::io::Result<u64> {
    let mut client = Client::connect(server.address)?;
    for (at, ttl) in ttls.iter().enumerate() {
        client.call(&format!("set ttl{at} 0 {ttl} 2\r\nhi"))?;
    }
    let mut bad = 0;
    for (at, _) in ttls.iter().enumerate() {
        let key = format!("ttl{at}");
        // Two tries: the first may meet the clock's own tick between its two questions.
        let is_exact = |client: &mut Client| -> std::io::Result<Option<bool>> {
            let Some(left) = seconds_left(client, &key)? else {
                return Ok(None);
            };
            if left > 1 {
                client.call(&format!("debugtime {}", left - 1))?;
            }
            let last = seconds_left(client, &key)?;
            client.call("debugtime 1")?;
            let gone = seconds_left(client, &key)?.is_none();
            Ok(Some(gone && last.is_none_or(|left| left <= 1)))
        };
        match is_exact(&mut client)? {
            Some(true) => {}
            Some(false) => bad += 1,
            // Gone before it was asked for: right only if an earlier key with nearly the same TTL moved us here.
            None => {
                let earlier = at
                    .checked_sub(1)
                    .and_then(|at| ttls.get(at))
                    .copied()
                    .unwrap_or(0);
                let own = ttls.get(at).copied().unwrap_or(0);
                bad += u64::from(own > earlier + 2);
            }
        }
    }
    Ok(bad)
}

/// What `mg <key> t` says is left; `None` for a miss.
fn seconds_left(client: &mut Client, key: &str) -> std::io::Result<Option<i64>> {
    let answer = client.call(&format!("mg {key} t"))?;
    Ok(answer
        .strip_prefix("HD t")
        .and_then(|left| left.parse().ok()))
}

/// Readers that ask for megabytes and do not read, uploads that stop half-way; a calm reader beside them.
pub fn stalled(sides: &Sides) -> Result<Vec<Finding>, Error> {
    const STALLED: usize = 64;
    let server = sides.ours(MEMORY_MIB).start().map_err(Error::Start)?;
    let scenario = Scenario::parse(
        "[[scenario]]\nname = 'calm'\ntitle = 'calm'\nkeys = 10000\nvalue_bytes = 32\nconnections = 8\nrate = 20000.0\nseconds = 3.0",
    )
    .ok()
    .and_then(|scenarios| scenarios.into_iter().next());
    let Some(scenario) = scenario else {
        return Ok(Vec::new());
    };
    let values = Values::new(scenario.size(), 1);
    let alone = Sides {
        layout: sides.layout.reader(),
        ..sides.clone()
    };
    fill(
        sides,
        &server,
        &(scenario.first_id()..scenario.first_id() + scenario.keys),
        &values,
    )?;
    let big = Values::new(Size::Fixed(1_000_000), 2);
    fill(sides, &server, &(0..8), &big)?;
    let calm = drive(&alone, &server, &scenario, &values, (scenario.dialect, 1))?;
    let io = |error: std::io::Error| Error::load(server.name)(error.into());
    let mut sockets = Vec::new();
    for at in 0..STALLED {
        sockets.push(stalled_reader(server.address).map_err(io)?);
        sockets.push(stalled_upload(server.address, at).map_err(io)?);
    }
    let (stop, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    let beside = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                peak.fetch_max(server.resident_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let beside = drive(&alone, &server, &scenario, &values, (scenario.dialect, 2));
        stop.store(true, Ordering::Relaxed);
        beside
    })?;
    drop(sockets);
    let what = "64 stalled readers of 1 MB and 64 stalled uploads";
    let note = format!(
        "p99 of others over calm ({:.0} / {:.0} us)",
        beside.p99_us, calm.p99_us
    );
    let resident = mib(peak.load(Ordering::Relaxed));
    Ok(vec![
        Finding::new(
            what,
            budget_mib(MEMORY_MIB),
            resident,
            "MiB resident at -m 64, peak",
        ),
        Finding::new(what, 2.0, beside.p99_us / calm.p99_us, note),
    ])
}

fn stalled_reader(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(address)?;
    for id in 0..8_u64 {
        let mut request = b"get ".to_vec();
        request.extend_from_slice(&key_text(id));
        request.extend_from_slice(b"\r\n");
        socket.write_all(&request)?;
    }
    Ok(socket)
}

fn stalled_upload(address: SocketAddr, at: usize) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nonblocking(true)?;
    let mut request = format!("set upload{at} 0 0 1000000\r\n").into_bytes();
    request.resize(500_000, b'u');
    let mut sent = 0;
    while let Some(rest) = request.get(sent..).filter(|rest| !rest.is_empty()) {
        match socket.write(rest) {
            Ok(bytes) => sent += bytes,
            // A server that takes no more has said that its budget is full, one that hangs up as well.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    Ok(socket)
}

/// Sets of mixed sizes while memory is full, each read back at once on another connection.
pub fn read_your_writes(sides: &Sides) -> Result<Vec<Finding>, Error> {
    const CHECKED: u64 = 30_000;
    let server = sides.ours(MEMORY_MIB).start().map_err(Error::Start)?;
    let mix = FillSize::all()[8];
    let values = Values::new(mix.size, 3);
    let keys = mix.keys_for(3 * (MEMORY_MIB << 20));
    let mut refused = fill(sides, &server, &(0..keys), &values)?;
    let stop = Arc::new(AtomicBool::new(false));
    let io = |error: std::io::Error| Error::load(server.name)(error.into());
    let result = std::thread::scope(|scope| {
        let noise = scope.spawn(|| {
            let plan = Plan {
                connections: 4,
                depth: 16,
                stop: Arc::clone(&stop),
                ..Plan::new(server.address)
            };
            load::run(
                &plan,
                Fill::over(&(1 << 50..1 << 51), &values, 1),
                &Meter::None,
            )
            .err()
        });
        let result = write_then_read(server.address, CHECKED);
        stop.store(true, Ordering::Relaxed);
        let failed = noise
            .join()
            .ok()
            .flatten()
            .filter(|error| !matches!(error, load::Error::Stopped));
        failed.map_or(result, |error| {
            Err(std::io::Error::other(error.to_string()))
        })
    });
    let (lost, not_stored) = result.map_err(io)?;
    refused += not_stored;
    let what = "sets of mixed sizes with memory full";
    Ok(vec![
        Finding::new(
            what,
            0.0,
            refused as f64,
            format!("refused of {}", keys + CHECKED),
        ),
        Finding::new(
            what,
            0.0,
            lost as f64,
            format!("of {CHECKED} not readable at once on another connection"),
        ),
        Finding::new(
            what,
            budget_mib(MEMORY_MIB),
            mib(server.resident_bytes()),
            "MiB resident at -m 64",
        ),
    ])
}

/// Returns how many of `count` keys did not come back at once, and how many were not stored.
fn write_then_read(address: SocketAddr, count: u64) -> std::io::Result<(u64, u64)> {
    let (mut writer, mut reader) = (Client::connect(address)?, Client::connect(address)?);
    let pool = Pool::new(Size::MIX.max(), 5);
    let (mut lost, mut refused) = (0, 0);
    for id in 0..count {
        let value = pool.value(id, 0, Size::MIX.of(id));
        let mut request = format!("set now{id} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        if writer.call_bytes(&request)? != "STORED" {
            refused += 1;
            continue;
        }
        lost += u64::from(reader.get(&format!("now{id}"))?.as_deref() != Some(value));
    }
    Ok((lost, refused))
}

/// A blocking client that asks one thing at a time.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    fn call(&mut self, request: &str) -> std::io::Result<String> {
        self.call_bytes(request.as_bytes())
    }

    fn call_bytes(&mut self, request: &[u8]) -> std::io::Result<String> {
        let mut socket = self.stream.get_ref();
        socket.write_all(request)?;
        socket.write_all(b"\r\n")?;
        self.line()
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn get(&mut self, key: &str) -> std::io::Result<Option<Vec<u8>>> {
        let header = self.call(&format!("get {key}"))?;
        let Some(bytes) = header
            .rsplit(' ')
            .next()
            .and_then(|b| b.parse::<usize>().ok())
        else {
            return Ok(None);
        };
        let mut value = vec![0; bytes + 2];
        std::io::Read::read_exact(&mut self.stream, &mut value)?;
        value.truncate(bytes);
        self.line()?;
        Ok(Some(value))
    }
}

/// One check.
pub type Check = fn(&Sides) -> Result<Vec<Finding>, Error>;

/// All checks, by name.
pub const ALL: [(&str, Check); 5] = [
    ("empty", empty),
    ("one-key", one_key),
    ("ttls", ttls),
    ("stalled", stalled),
    ("read-your-writes", read_your_writes),
];

/// What the server under test answers to `version`.
pub fn version(sides: &Sides) -> Result<String, Error> {
    let server = sides.ours(MEMORY_MIB).start().map_err(Error::Start)?;
    ask(server.address, "version").map_err(Error::Start)
}
