//! How stale a coherent near cache is, and what watchers cost the server: 10,000 writes a second, 16 watchers.
//!
//! `cargo run --release -p glasscache-world --example coherent [SECONDS]` (`make bench-coherent`). The server and four
//! processes with four clients each are children of this one, which writes. First the server's CPU time is compared
//! with and without watchers. Then children are stopped for a while, killed and started again, the server too, and
//! every read is compared with the time at which newer values had been acknowledged.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use glasscache_client::near::StrategyOptions;
use glasscache_client::request::Item;
use glasscache_client::{Address, Budget, Client, Options, Placement, StoreMode, WireKey};
use glasscache_server::{Config, Listen, start};

/// Keys that are read; each is written five times a second.
const READ_KEYS: usize = 100;
/// Keys that are only written.
const OTHER_KEYS: usize = 10_000;
/// Writes of a batch, one of [`BATCHES_PER_S`]; one in twenty is of a key that is read.
const BATCH_WRITES: usize = 20;
const BATCHES_PER_S: u64 = 500;
const READERS: usize = 4;
const CLIENTS_PER_READER: usize = 4;
/// Pause between two reads of a client.
const READ_PAUSE: Duration = Duration::from_millis(1);
/// How stale a value may be.
const STALE_MS_MAX: u64 = 50;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[1..] {
        ["serve", port] => serve(port.parse()?),
        ["read", address, file, seconds] => run_reader(address, Path::new(file), seconds.parse()?),
        [] => measure(30),
        [seconds] => measure(seconds.parse()?),
        _ => Err("usage: coherent [SECONDS]".into()),
    }
}

/// A server in this process.
fn serve(port: u16) -> Result<(), Failure> {
    let server = start(Config {
        listeners: vec![Listen::Tcp(([127, 0, 0, 1], port).into())],
        memory_bytes: 256 << 20,
        workers: 2,
        ..Config::default()
    })?;
    if let Some(glasscache_server::Address::Tcp(address)) = server.addresses().first() {
        writeln!(std::io::stdout(), "{address}")?;
    }
    server.join();
    Ok(())
}

fn now_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.unwrap_or_default().as_nanos() as u64
}

fn connect_client(address: &str, is_coherent: bool) -> Result<Client, Failure> {
    let strategy_file = "glasscache-strategy 1\nstrategy lru:1000".parse()?;
    let strategy = StrategyOptions {
        is_coherent: true,
        near_ttl: None,
        ..StrategyOptions::new(strategy_file)
    };
    let options = Options {
        strategy: is_coherent.then_some(strategy),
        timeout: Duration::from_secs(1),
        ..Options::default()
    };
    Ok(Client::new(&Address::parse_list(address)?, Placement::Ketama, options)?)
}

fn key_of(index: usize) -> String {
    if index < READ_KEYS { format!("read:{index}") } else { format!("other:{index}") }
}

fn to_wire_key(key: &str) -> WireKey<'_> {
    WireKey { bytes: key.as_bytes(), is_base64: false }
}

/// One read: client, when it began, key, the number of its value, how often the near cache had been cleared, whether
/// it was a hit of it.
type ReadRecord = [u64; 6];

/// Reads with several clients, and writes each read to a file of its client.
fn run_reader(address: &str, file: &Path, seconds: u64) -> Result<(), Failure> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let seed = now_ns();
    let client_threads: Vec<_> = (0..CLIENTS_PER_READER as u64)
        .map(|client_index| {
            let address = address.to_owned();
            let client_file = file.with_extension(client_index.to_string());
            std::thread::spawn(move || {
                read_with_one(&address, &client_file, seed.wrapping_add(client_index), end)
                    .map_err(|error| error.to_string())
            })
        })
        .collect();
    for client_thread in client_threads {
        client_thread.join().map_err(|_| "a reader panicked")??;
    }
    Ok(())
}

fn read_with_one(address: &str, file: &Path, seed: u64, end: Instant) -> Result<(), Failure> {
    let client = connect_client(address, true)?;
    let near = client.near().ok_or("no strategy")?.clone();
    let mut out = fs::File::create(file)?;
    let mut random = seed | 1;
    while Instant::now() < end {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key_index = (random >> 33) as usize % READ_KEYS;
        let counters_before = near.counters();
        let begin_ns = now_ns();
        let value = client.get(
            to_wire_key(&key_of(key_index)),
            false,
            &Budget::new(Duration::from_secs(1)),
        );
        if let Ok(Some(value)) = value {
            let value_number: u64 = std::str::from_utf8(&value.bytes)?.parse()?;
            let is_hit =
                u64::from(near.counters().local_cache_hits > counters_before.local_cache_hits);
            let record: ReadRecord = [
                seed,
                begin_ns,
                key_index as u64,
                value_number,
                counters_before.watch_clears,
                is_hit,
            ];
            let bytes: Vec<u8> = record.iter().flat_map(|field| field.to_le_bytes()).collect();
            out.write_all(&bytes)?;
        }
        std::thread::sleep(READ_PAUSE);
    }
    Ok(())
}

/// The child processes, which end with this one.
struct Children {
    server: Child,
    address: String,
    readers: Vec<Child>,
    folder: PathBuf,
    file_count: usize,
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in self.readers.iter_mut().chain([&mut self.server]) {
            let _ = child.kill(); // it may have ended
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder); // what is left of it is in the temporary folder
    }
}

fn start_server(port: &str) -> Result<(Child, String), Failure> {
    let mut server = Command::new(std::env::current_exe()?)
        .args(["serve", port])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut address = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut address)?;
    Ok((server, address.trim().to_owned()))
}

impl Children {
    fn start_reader(&mut self, seconds: u64) -> Result<Child, Failure> {
        self.file_count += 1;
        let file = self.folder.join(format!("reads-{}", self.file_count));
        Ok(Command::new(std::env::current_exe()?)
            .arg("read")
            .arg(&self.address)
            .arg(file)
            .arg(seconds.to_string())
            .spawn()?)
    }

    /// CPU time of the server's threads.
    fn server_cpu_ns(&self) -> Result<u64, Failure> {
        let mut sum = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.server.id()))? {
            let line = fs::read_to_string(task?.path().join("schedstat"))?;
            sum += line.split(' ').next().ok_or("no CPU time")?.parse::<u64>()?;
        }
        Ok(sum)
    }
}

fn send_signal(child: &Child, name: &str) -> Result<(), Failure> {
    Command::new("kill").args([name, &child.id().to_string()]).status()?;
    Ok(())
}

/// Writes numbered values at a rate, and notes the number and the time of each acknowledged one, by key.
struct Writer {
    client: Client,
    value_number: u64,
    acknowledged: Vec<Vec<(u64, u64)>>,
    next_other_key: usize,
    next_read_key: usize,
    started_at: Instant,
    batch_count: u64,
    write_count: u64,
}

impl Writer {
    fn new(address: &str) -> Result<Self, Failure> {
        Ok(Self {
            client: connect_client(address, false)?,
            value_number: 0,
            acknowledged: vec![Vec::new(); READ_KEYS],
            next_other_key: 0,
            next_read_key: 0,
            started_at: Instant::now(),
            batch_count: 0,
            write_count: 0,
        })
    }

    /// Writes for a time at the rate; batches that a stall delayed are left out.
    fn run(&mut self, duration: Duration) {
        self.started_at = Instant::now();
        self.batch_count = 0;
        while self.started_at.elapsed() < duration {
            let due = self.started_at
                + Duration::from_millis(1000 / BATCHES_PER_S) * self.batch_count as u32;
            self.batch_count += 1;
            let now = Instant::now();
            if due > now {
                std::thread::sleep(due - now);
            }
            if now.saturating_duration_since(due) < Duration::from_millis(20) {
                self.write_batch();
            }
        }
    }

    fn write_batch(&mut self) {
        self.value_number += 1;
        let text = self.value_number.to_string();
        self.next_read_key = (self.next_read_key + 1) % READ_KEYS;
        let mut keys = vec![key_of(self.next_read_key)];
        keys.extend((1..BATCH_WRITES).map(|_| {
            self.next_other_key = (self.next_other_key + 1) % OTHER_KEYS;
            key_of(READ_KEYS + self.next_other_key)
        }));
        let items: Vec<Item<'_>> = keys
            .iter()
            .map(|key| Item { key: to_wire_key(key), flags: 0, body: text.as_bytes() })
            .collect();
        let store_result =
            self.client.store_many(StoreMode::Set, &items, 0, &Budget::new(Duration::from_secs(1)));
        if store_result.is_ok_and(|failures| failures.is_empty()) {
            self.acknowledged[self.next_read_key].push((self.value_number, now_ns()));
            self.write_count += BATCH_WRITES as u64;
        }
    }
}

fn measure(seconds: u64) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("glasscache-coherent-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (server, address) = start_server("0")?;
    let mut children =
        Children { server, address: address.clone(), readers: Vec::new(), folder, file_count: 0 };
    measure_cpu(&children)?;
    let mut writer = Writer::new(&address)?;
    writer.run(Duration::from_secs(1));
    for _ in 0..READERS {
        let reader = children.start_reader(seconds + 5)?;
        children.readers.push(reader);
    }
    disturb(&mut children, &mut writer, seconds)?;
    for reader in &mut children.readers {
        let _ = reader.kill(); // it may have ended
        reader.wait()?;
    }
    report_reads(&children, &writer)
}

/// Compares the server's CPU time with and without watchers, in rounds that follow each other.
fn measure_cpu(children: &Children) -> Result<(), Failure> {
    let mut writer = Writer::new(&children.address)?;
    writer.run(Duration::from_secs(1));
    let mut costs_us = Vec::new();
    for _ in 0..3 {
        let mut measure_round = |watchers: usize| -> Result<(u64, u64), Failure> {
            let clients: Vec<Client> = (0..watchers)
                .map(|_| connect_client(&children.address, true))
                .collect::<Result<_, _>>()?;
            for client in &clients {
                let _ = client.get(
                    to_wire_key("read:0"),
                    false,
                    &Budget::new(Duration::from_secs(1)),
                )?;
            }
            std::thread::sleep(Duration::from_millis(200));
            let (cpu_ns, writes) = (children.server_cpu_ns()?, writer.write_count);
            writer.run(Duration::from_secs(3));
            Ok((children.server_cpu_ns()? - cpu_ns, writer.write_count - writes))
        };
        let (alone_ns, alone_writes) = measure_round(0)?;
        std::thread::sleep(Duration::from_millis(300));
        let (watched_ns, writes) = measure_round(READERS * CLIENTS_PER_READER)?;
        let expected_ns = alone_ns as f64 * writes as f64 / alone_writes.max(1) as f64;
        let sent_lines = writes as f64 * (READERS * CLIENTS_PER_READER) as f64;
        let cost_us = (watched_ns as f64 - expected_ns) / sent_lines / 1000.0;
        costs_us.push(cost_us);
        print(&format!(
            "{:.0} writes/s: server CPU {:.1} % without watchers, {:.1} % with 16; {cost_us:.3} us per line sent",
            writes as f64 / 3.0,
            alone_ns as f64 / 3e7,
            watched_ns as f64 / 3e7,
        ));
        std::thread::sleep(Duration::from_millis(500));
    }
    costs_us.sort_by(f64::total_cmp);
    print(&format!(
        "added server CPU: {:.3} us per line sent (median of 3, asked <= 2)",
        costs_us[1]
    ));
    Ok(())
}

/// Writes while children are stopped, killed and started again.
fn disturb(children: &mut Children, writer: &mut Writer, seconds: u64) -> Result<(), Failure> {
    let pause = Duration::from_millis(700);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut event_index = 0;
    while Instant::now() < end {
        writer.run(pause);
        let reader_index = event_index % READERS;
        match event_index % 5 {
            0 => {
                send_signal(&children.readers[reader_index], "-STOP")?;
                writer.run(Duration::from_millis(300));
                send_signal(&children.readers[reader_index], "-CONT")?;
            }
            1 => {
                send_signal(&children.server, "-STOP")?;
                std::thread::sleep(Duration::from_millis(300));
                send_signal(&children.server, "-CONT")?;
            }
            2 => {
                children.readers[reader_index].kill()?;
                children.readers[reader_index].wait()?;
                let time_left = end.saturating_duration_since(Instant::now()).as_secs();
                children.readers[reader_index] = children.start_reader(time_left + 5)?;
            }
            3 if event_index % 15 == 3 => {
                children.server.kill()?;
                children.server.wait()?;
                let port = children.address.rsplit(':').next().ok_or("no port")?.to_owned();
                (children.server, _) = start_server(&port)?;
            }
            _ => {}
        }
        event_index += 1;
    }
    Ok(())
}

/// Compares what was read with what had been acknowledged.
fn report_reads(children: &Children, writer: &Writer) -> Result<(), Failure> {
    let (mut reads, mut hits, mut stale, mut late, mut stale_after_clear) =
        (0_u64, 0, 0_u64, 0_u64, 0_u64);
    let (mut stale_ns_max, mut clears) = (0, 0);
    for file in fs::read_dir(&children.folder)? {
        let mut bytes = Vec::new();
        fs::File::open(file?.path())?.read_to_end(&mut bytes)?;
        let (mut clears_before, mut previous_begin_ns, mut cleared_ns) = (None, 0, 0);
        for record in bytes.as_chunks::<{ 6 * 8 }>().0 {
            let field = |index: usize| {
                let field_bytes = record[index * 8..][..8].try_into();
                field_bytes.map_or(0, u64::from_le_bytes)
            };
            let (begin_ns, key_index, value_number) = (field(1), field(2) as usize, field(3));
            if clears_before.is_some_and(|before| before < field(4)) {
                // The near cache was cleared after the read before this one.
                cleared_ns = previous_begin_ns;
                clears += 1;
            }
            (clears_before, previous_begin_ns) = (Some(field(4)), begin_ns);
            (reads, hits) = (reads + 1, hits + field(5));
            let acknowledged_writes = &writer.acknowledged[key_index];
            let newer_index = acknowledged_writes
                .partition_point(|&(written_number, _)| written_number <= value_number);
            let Some(&(_, newer_ns)) = acknowledged_writes.get(newer_index) else {
                continue;
            };
            let stale_ns = begin_ns.saturating_sub(newer_ns);
            stale += u64::from(stale_ns > 0);
            late += u64::from(stale_ns > STALE_MS_MAX * 1_000_000);
            stale_ns_max = stale_ns_max.max(stale_ns);
            stale_after_clear += u64::from(stale_ns > 0 && newer_ns < cleared_ns);
        }
    }
    let percent = |count: u64| 100.0 * count as f64 / reads.max(1) as f64;
    print(&format!(
        "{reads} reads, {:.1} % from the near cache, which was cleared {clears} times; {} writes",
        percent(hits),
        writer.write_count
    ));
    print(&format!(
        "stale at all: {:.3} %; by more than {STALE_MS_MAX} ms: {late} reads, {:.4} % (asked < 0.1 %); at most {:.1} ms",
        percent(stale),
        percent(late),
        stale_ns_max as f64 / 1e6,
    ));
    print(&format!("values from before a clear: {stale_after_clear} (asked 0)"));
    Ok(())
}

fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}"); // the pipe may be closed
}
