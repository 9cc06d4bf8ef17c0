//! Peers with TLS that send a part and stop, at every point of a connection: the memory that they make the server hold
//! is bounded, and an honest client beside them is served as before.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use glasscache_server::{ClientCertificate, Config, RunningServer, start};
use rustls::ClientConfig;

use crate::timing::assert_in_time;
use crate::tls::support::{Client, client_config, config, connect, expect_reply, new_client};
use glasscache_peers::Authority;

/// How long an honest request may take beside peers that have been idle for two seconds.
const HONEST_TIME_MAX: Duration = Duration::from_millis(1500);

/// The same while new peers keep coming: those of the last two seconds cannot be told from slow clients.
const HONEST_TIME_MAX_UNDER_ATTACK: Duration = Duration::from_millis(3500);

/// A header of a record of the largest size.
const RECORD_HEADER: [u8; 5] = [23, 3, 3, 0x41, 0];

struct Setup {
    server: RunningServer,
    client_config: Arc<ClientConfig>,
    _folder: tempfile::TempDir,
}

impl Setup {
    /// A server with a limit of 2 MiB for what peers hold.
    fn new(connections_max: u32) -> Setup {
        Setup::with_memory(connections_max, 16 << 20)
    }

    /// A server with a limit of an eighth of `memory_bytes` for what peers hold.
    fn with_memory(connections_max: u32, memory_bytes: u64) -> Setup {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "authority");
        let identity = authority.sign("server", 2090);
        let config = Config {
            connections_max,
            memory_bytes,
            workers: 2,
            ..config(&identity, ClientCertificate::NotRequested)
        };
        let client_config = Arc::new(client_config(&authority, None));
        Setup { server: start(config).unwrap(), client_config, _folder: folder }
    }

    /// A client after its handshake.
    fn client(&self) -> Client {
        let mut client = new_client(connect(&self.server, 0), &self.client_config);
        while client.conn.is_handshaking() {
            client.conn.complete_io(&mut client.sock).unwrap();
        }
        client
    }

    /// The rows of `stats glasscache` about the memory of peers, over the listener without TLS.
    fn counters(&self) -> Vec<(String, u64)> {
        let mut stream = connect(&self.server, 1);
        stream.write_all(b"stats glasscache\r\nquit\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let names = ["peer", "tls", "stalled", "upload"];
        text.lines()
            .filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '))
            .filter(|(name, _)| names.iter().any(|start| name.starts_with(start)))
            .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
            .collect()
    }

    fn counter(&self, name: &str) -> u64 {
        self.counters().into_iter().find(|(row_name, _)| row_name == name).unwrap().1
    }

    /// Sets and gets a value over a connection of its own, and checks the time.
    fn check_honest_set(&self, value_bytes: usize, time_max: Duration, situation: &str) {
        let began_at = Instant::now();
        let mut client = self.client();
        client.sock.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client.write_all(&set_request("honest", value_bytes)).unwrap();
        client.flush().unwrap();
        let mut reply = [0; 8];
        if let Err(error) = client.read_exact(&mut reply) {
            let address = client.sock.local_addr().unwrap();
            let elapsed = began_at.elapsed();
            panic!(
                "{situation}: {value_bytes} bytes from {address} after {elapsed:?}: {error}; {:?}",
                self.counters()
            );
        }
        assert_eq!(&reply, b"STORED\r\n", "{situation}: {value_bytes} bytes");
        expect_reply(&mut client, b"mg honest s\r\n", format!("HD s{value_bytes}\r\n").as_bytes());
        let situation = format!("{situation}: {value_bytes} bytes");
        assert_in_time(began_at.elapsed(), time_max, &situation);
    }

    fn check_memory(&self, situation: &str) {
        let (held_bytes, limit_bytes) =
            (self.counter("peer_bytes"), self.counter("peer_bytes_limit"));
        assert!(held_bytes * 10 <= limit_bytes * 11, "{situation}: {held_bytes} of {limit_bytes}");
        let counters = self.counters();
        assert_eq!(self.counter("peer_bytes_faults"), 0, "{situation}: {counters:?}");
    }

    fn check(&self, situation: &str) {
        // A peer that sends nothing is closed for others after two seconds, with the next regular check.
        thread::sleep(Duration::from_secs(4));
        for value_bytes in [100, 15_000, 30_000, 60_000, 200_000] {
            self.check_honest_set(value_bytes, HONEST_TIME_MAX, situation);
            self.check_memory(situation);
        }
    }
}

fn set_request(key: &str, value_bytes: usize) -> Vec<u8> {
    let mut request = format!("set {key} 0 0 {value_bytes}\r\n").into_bytes();
    request.resize(request.len() + value_bytes, b'x');
    request.extend_from_slice(b"\r\n");
    request
}

/// Sends the beginning of a record that never ends. The server may have closed the connection for others.
fn send_incomplete_record(client: &mut Client, bytes: usize) {
    let record = [&RECORD_HEADER[..], &vec![7; bytes]].concat();
    let _ = client.sock.write_all(&record);
}

/// Sends the beginning of a request. The server may have closed the connection for others.
fn send_incomplete_request(client: &mut Client, part: &[u8]) {
    let _ = client.write_all(part).and_then(|()| client.flush());
}

#[test]
fn incomplete_records_stay_in_the_kernel() {
    let setup = Setup::new(1024);
    let peers: Vec<Client> = (0..220)
        .map(|_| {
            let mut client = setup.client();
            send_incomplete_record(&mut client, 16_600);
            client
        })
        .collect();
    setup.check("220 incomplete records");
    drop(peers);
}

#[test]
fn half_values_do_not_keep_others_from_storing_theirs() {
    let setup = Setup::new(1024);
    let request = set_request("half", 60_000);
    let mut peers: Vec<Client> = (0..150)
        .map(|_| {
            let mut client = setup.client();
            send_incomplete_request(&mut client, &request[..30_000]);
            client
        })
        .collect();
    setup.check("150 half values");
    // Each is stored when it is complete, refused, or closed.
    let mut stored = 0;
    for client in &mut peers {
        let mut reply = Vec::new();
        client.sock.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        if client.write_all(&request[30_000..]).and_then(|()| client.flush()).is_ok() {
            let mut byte = [0];
            while !reply.ends_with(b"\r\n") && client.read(&mut byte).is_ok_and(|count| count == 1)
            {
                reply.push(byte[0]);
            }
        }
        let reply = String::from_utf8(reply).unwrap();
        stored += usize::from(reply == "STORED\r\n");
        let is_possible =
            ["", "STORED\r\n", "SERVER_ERROR out of memory storing object\r\n"].contains(&&*reply);
        assert!(is_possible, "{reply}");
    }
    assert!(stored > 0);
    setup.check_memory("after the rest");
}

/// A whole value waits for peers that have just sent a half of theirs, but not until they are stalled.
#[test]
fn a_whole_value_is_stored_before_the_halves_of_others_are_complete() {
    let setup = Setup::new(1024);
    let request = set_request("half", 60_000);
    let mut peers: Vec<Client> = (0..150).map(|_| setup.client()).collect();
    for round in 0..3 {
        for client in &mut peers {
            send_incomplete_request(client, &request[..15_000]);
        }
        setup.check_honest_set(60_000, HONEST_TIME_MAX, &format!("150 young halves, {round}"));
        peers.truncate(50);
        peers.extend((0..100).map(|_| setup.client()));
    }
}

/// What others have reserved for the rest of their values does not count as sent: a whole value is stored while they are
/// in the middle of theirs, and go on sending.
#[test]
fn a_whole_value_is_stored_before_values_for_which_memory_is_reserved() {
    let setup = Setup::with_memory(1024, 64 << 20);
    let value_bytes = 60_000;
    let request = set_request("part", value_bytes);
    // The first values are received into the store; the others take all that is left of the memory, and some wait.
    let mut peers: Vec<Client> = (0..260).map(|_| setup.client()).collect();
    for client in &mut peers {
        send_incomplete_request(client, &request[..30_000]);
    }
    let mut honest = setup.client();
    honest.write_all(&set_request("honest", value_bytes)).unwrap();
    honest.flush().unwrap();
    honest.sock.set_read_timeout(Some(Duration::from_millis(900))).unwrap();
    let mut reply = [0; 8];
    // After two seconds it would be received in any case. Those that send something meanwhile are not closed for it.
    let is_stored = (0..2).any(|_| {
        if honest.read_exact(&mut reply).is_ok() {
            return true;
        }
        for client in &mut peers {
            let _ = client.write_all(&[b'v'; 4_096]).and_then(|()| client.flush());
        }
        false
    });
    assert!(is_stored, "{:?}", setup.counters());
    assert_eq!(&reply, b"STORED\r\n");
    setup.check_memory("while others send their values");
}

/// Requests hold all that they may, and peers go on to connect: an honest client is admitted all the same.
#[test]
fn a_client_is_admitted_although_requests_hold_all_the_memory() {
    let setup = Setup::new(1024);
    let request = set_request("half", 60_000);
    let mut peers: Vec<Client> = Vec::new();
    let mut hellos: Vec<TcpStream> = Vec::new();
    for round in 0..8 {
        for _ in 0..12 {
            let mut client = setup.client();
            send_incomplete_request(&mut client, &request[..30_000]);
            peers.push(client);
            let mut stream = connect(&setup.server, 0);
            begin_long_hello(&mut stream, 5_000);
            hellos.push(stream);
            setup.check_memory("while requests hold all the memory");
        }
        setup.check_honest_set(1000, HONEST_TIME_MAX_UNDER_ATTACK, &format!("round {round}"));
    }
    assert_eq!(setup.counter("tls_connections_refused"), 0);
    drop((peers, hellos));
}

#[test]
fn honest_values_in_two_halves_are_all_stored_soon() {
    let setup = Setup::new(1024);
    let request = set_request("half", 60_000);
    let mut clients: Vec<Client> = (0..200).map(|_| setup.client()).collect();
    let began_at = Instant::now();
    for client in &mut clients {
        client.write_all(&request[..30_000]).unwrap();
        client.flush().unwrap();
    }
    thread::sleep(Duration::from_millis(300));
    for client in &mut clients {
        client.write_all(&request[30_000..]).unwrap();
        client.flush().unwrap();
    }
    for client in &mut clients {
        expect_reply(client, b"", b"STORED\r\n");
    }
    assert_in_time(began_at.elapsed(), Duration::from_secs(4), "200 values in two halves");
    setup.check("after honest halves");
}

/// A record of a handshake that announces a long message and contains its beginning.
fn begin_long_hello(stream: &mut TcpStream, bytes: usize) {
    let mut record = vec![22, 3, 1, 0x3f, 0xff, 1, 0, 0xf0, 0, 3, 3];
    record.resize(bytes, 7);
    let _ = stream.write_all(&record);
}

#[test]
fn unfinished_handshakes_take_their_own_memory_only() {
    let setup = Setup::new(1024);
    let mut honest = setup.client();
    let mut peers: Vec<TcpStream> = Vec::new();
    for round in 0..3 {
        for _ in 0..256 {
            let mut stream = connect(&setup.server, 0);
            begin_long_hello(&mut stream, 15_000);
            peers.push(stream);
        }
        let began_at = Instant::now();
        for _ in 0..20 {
            expect_reply(&mut honest, &set_request("a", 60_000), b"STORED\r\n");
        }
        assert_in_time(began_at.elapsed(), HONEST_TIME_MAX, &format!("20 values, round {round}"));
        setup.check("256 unfinished handshakes");
    }
    drop(peers);
}

#[test]
fn silent_connections_do_not_keep_a_distant_client_from_its_handshake() {
    let setup = Setup::new(1024);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flood = {
        let (stop, address) = (Arc::clone(&stop), connect(&setup.server, 0).peer_addr().unwrap());
        thread::spawn(move || {
            let mut silent = std::collections::VecDeque::new();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                silent.extend(TcpStream::connect(address));
                thread::sleep(Duration::from_micros(200));
                if silent.len() > 600 {
                    silent.pop_front();
                }
            }
        })
    };
    thread::sleep(Duration::from_millis(500));
    for _ in 0..5 {
        let mut client = new_client(connect(&setup.server, 0), &setup.client_config);
        // Its packets take 25 ms in each direction.
        loop {
            while client.conn.wants_write() {
                client.conn.write_tls(&mut client.sock).unwrap();
            }
            if !client.conn.is_handshaking() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
            assert!(client.conn.read_tls(&mut client.sock).unwrap() > 0, "it was closed");
            client.conn.process_new_packets().unwrap();
        }
        expect_reply(&mut client, b"mn\r\n", b"MN\r\n");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    flood.join().unwrap();
}

#[test]
fn open_connections_are_bounded_by_memory_and_those_that_were_used_stay() {
    let setup = Setup::new(2000);
    let mut used: Vec<Client> = (0..50).map(|_| setup.client()).collect();
    for client in &mut used {
        expect_reply(client, b"mn\r\n", b"MN\r\n");
    }
    let unused: Vec<Client> = (0..600)
        .map(|_| {
            let mut client = setup.client();
            send_incomplete_record(&mut client, 100);
            client
        })
        .collect();
    setup.check("600 unused connections");
    assert!(setup.counter("tls_connections_displaced") > 0);
    for client in &mut used {
        expect_reply(client, b"mn\r\n", b"MN\r\n");
    }
    drop(unused);
}

/// A generator of numbers, so that a failing program can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Peers of every kind begin, send parts of any length, stop and leave in a random order. Beside them an honest client
/// is served in time.
/// `GLASSCACHE_TEST_PEER_PROGRAMS` sets the number of programs, `GLASSCACHE_TEST_PEER_SEED` the seed of the first.
#[test]
fn a_random_program_of_peers_keeps_within_the_memory() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let first_seed = number("GLASSCACHE_TEST_PEER_SEED", 1);
    for seed in first_seed..first_seed + number("GLASSCACHE_TEST_PEER_PROGRAMS", 1) {
        run_program_of_peers(seed);
    }
}

fn run_program_of_peers(seed: u64) {
    let setup = Setup::new(1024);
    // The first seed begins with the golden ratio in 64 bits, the others with its multiples: none with 0.
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let request = set_request("peer", 60_000);
    let mut peers: Vec<Client> = Vec::new();
    let mut hellos: Vec<TcpStream> = Vec::new();
    for step in 0..600 {
        match random.below(6) {
            0 | 1 => {
                let mut client = setup.client();
                send_incomplete_record(&mut client, random.below(16_640) as usize);
                peers.push(client);
            }
            2 | 3 => {
                let mut client = setup.client();
                let sent_bytes = 1 + random.below(request.len() as u64 - 1) as usize;
                send_incomplete_request(&mut client, &request[..sent_bytes]);
                peers.push(client);
            }
            4 => {
                let mut stream = connect(&setup.server, 0);
                begin_long_hello(&mut stream, 1 + random.below(16_000) as usize);
                hellos.push(stream);
            }
            _ if !peers.is_empty() => {
                let index = random.below(peers.len() as u64) as usize;
                drop(peers.swap_remove(index));
            }
            _ => hellos.clear(),
        }
        if step % 40 == 39 {
            let situation = format!("seed {seed}, step {step}");
            let value_bytes = 1 + random.below(100_000) as usize;
            setup.check_honest_set(value_bytes, HONEST_TIME_MAX_UNDER_ATTACK, &situation);
            setup.check_memory(&situation);
        }
    }
    drop(peers);
    let deadline = Instant::now() + Duration::from_secs(5);
    while setup.counter("peer_bytes") > 100_000 && Instant::now() < deadline {
        hellos.clear();
        thread::sleep(Duration::from_millis(20));
    }
    let held_bytes = setup.counter("peer_bytes");
    assert!(held_bytes <= 100_000, "seed {seed}: {held_bytes} bytes are left behind");
}
