//! The curve, the hot keys and the prefixes of a server under load, over a socket.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by a panic")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use glasscache_server::{Config, TuningGoal, start};

use crate::live_server;

/// How long a test waits for what the server reports once a second.
const PATIENCE: Duration = Duration::from_secs(30);

struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, request: &str) {
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Whether a key of the reply is there; `END` ends it.
    fn read_hit(&mut self) -> bool {
        let line = self.read_line();
        if line == "END" {
            return false;
        }
        let value_bytes: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
        let mut value = vec![0; value_bytes + "\r\nEND\r\n".len()];
        self.0.read_exact(&mut value).unwrap();
        true
    }

    /// Gets the keys in one pipeline and stores those that it missed.
    fn read_through(&mut self, keys: &[String]) {
        self.send(&format!("get {}\r\n", keys.join("\r\nget ")));
        let missed: Vec<&String> = keys.iter().filter(|_| !self.read_hit()).collect();
        let value = "v".repeat(100);
        let sets = missed.iter().map(|key| format!("set {key} 0 0 100\r\n{value}\r\n"));
        self.send(&sets.collect::<String>());
        for _ in &missed {
            assert_eq!(self.read_line(), "STORED");
        }
    }

    fn stats(&mut self, group: &str) -> HashMap<String, String> {
        self.send(&format!("stats {group}\r\n"));
        let mut rows = HashMap::new();
        loop {
            let line = self.read_line();
            let Some(row) = line.strip_prefix("STAT ") else {
                assert_eq!(line, "END");
                return rows;
            };
            let (name, value) = row.split_once(' ').unwrap_or((row, ""));
            rows.insert(name.to_owned(), value.to_owned());
        }
    }
}

/// Every other key is one of ten hot ones, the others are spread over more than fits.
fn next_keys(state: &mut u64) -> Vec<String> {
    let mut draw = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *state >> 33
    };
    let mut next_key = |index| match index % 2 {
        0 if draw() % 2 == 0 => "hot:0".to_owned(),
        0 => format!("hot:{}", draw() % 10),
        _ => format!("page:{}", draw() % 40_000),
    };
    (0..50).map(&mut next_key).collect()
}

#[test]
fn a_server_under_load_reports_its_curve_its_hot_keys_and_its_prefixes() {
    let config = Config { memory_bytes: 2 << 20, ..live_server::config() };
    let server = start(config).unwrap();
    let mut client = Client(BufReader::new(live_server::connect(&server)));
    assert_eq!(client.stats("curve")["state"], "warming");
    let number =
        |rows: &HashMap<String, String>, name: &str| -> f64 { rows[name].parse().unwrap() };
    let (mut state, started_at) = (1, Instant::now());
    let (mut pause, mut dropped_events) = (Duration::from_millis(5), 0.0);
    let curve = loop {
        (0..20).for_each(|_| client.read_through(&next_keys(&mut state)));
        let curve = client.stats("curve");
        if curve["state"] == "ok" {
            break curve;
        }
        assert!(started_at.elapsed() < PATIENCE, "{curve:?}");
        // On a busy machine the sampling thread gets little CPU time; if it loses many events, no curve is reported.
        if number(&curve, "dropped_events") > dropped_events {
            dropped_events = number(&curve, "dropped_events");
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        std::thread::sleep(pause);
    };
    assert_eq!(curve["3:memory_bytes"], (2 << 20).to_string());
    assert!(number(&curve, "0:miss_ratio") >= number(&curve, "7:miss_ratio"), "{curve:?}");
    for row in 0..8 {
        let [low, at, high] =
            ["low", "miss_ratio", "high"].map(|name| number(&curve, &format!("{row}:{name}")));
        assert!(low <= at && at <= high, "{curve:?}");
    }
    assert!(curve["advice:0:sentence"].contains("misses/s"), "{curve:?}");
    // A quarter of all, and a tenth of another quarter; in a whole second in which it was counted exactly.
    let is_expected = |hot_keys: &HashMap<String, String>| {
        hot_keys.get("0:key").is_some_and(|key| key == "hot:0")
            && (number(hot_keys, "0:share") - 0.275).abs() < 0.03
            && number(hot_keys, "0:error") < 0.03
    };
    while !is_expected(&client.stats("hotkeys 1s requests")) {
        (0..200).for_each(|_| client.read_through(&next_keys(&mut state)));
        assert!(started_at.elapsed() < PATIENCE, "{:?}", client.stats("hotkeys 1s requests"));
    }
    assert_eq!(client.stats("hotkeys")["0:key"], "hot:0");
    let prefixes = client.stats("prefixes");
    let mut names = [&prefixes["0:prefix"], &prefixes["1:prefix"]];
    names.sort();
    assert_eq!(names, ["hot:", "page:"]);
    server.stop();
}

#[test]
fn hot_keys_and_prefixes_are_refused_where_keys_must_not_be_listed() {
    let config = Config { dump_enabled: false, ..live_server::config() };
    let server = start(config).unwrap();
    let mut stream = live_server::connect(&server);
    for (request, reply) in [
        ("stats hotkeys\r\n", "CLIENT_ERROR stats hotkeys not allowed\r\n"),
        ("stats prefixes\r\n", "CLIENT_ERROR stats prefixes not allowed\r\n"),
        ("stats curve\r\n", "STAT state warming\r\n"),
    ] {
        live_server::expect_reply(&mut stream, request.as_bytes(), reply.as_bytes());
    }
}

#[test]
fn an_unknown_window_of_hot_keys_is_refused() {
    let server = start(live_server::config()).unwrap();
    let usage = b"CLIENT_ERROR usage: stats hotkeys [1s|1m|1h] [requests|bytes]\r\n";
    live_server::expect_reply(&mut live_server::connect(&server), b"stats hotkeys 2m\r\n", usage);
}

#[test]
fn a_miss_is_measured_from_its_lease_to_its_value() {
    const FILL: Duration = Duration::from_millis(5);
    let server = start(live_server::config()).unwrap();
    let mut client = Client(BufReader::new(live_server::connect(&server)));
    for index in 0..30 {
        client.send(&format!("mg fill:{index} N30 v\r\n"));
        assert_eq!(client.read_line(), "VA 0 W");
        assert_eq!(client.read_line(), "");
        std::thread::sleep(FILL);
        // A value without a lease is no fill.
        client.send(&format!("set other:{index} 0 0 1\r\nx\r\nms fill:{index} 1\r\nx\r\n"));
        assert_eq!([client.read_line(), client.read_line()], ["STORED", "HD"]);
    }
    let latency = client.stats("latency");
    assert_eq!((latency["fill:leases"].as_str(), latency["fill:count"].as_str()), ("30", "30"));
    let median_us: f64 = latency["fill:p50_us"].parse().unwrap();
    assert!(median_us > 0.98 * FILL.as_micros() as f64, "{latency:?}");
    let started_at = Instant::now();
    while !client.stats("curve").contains_key("miss_time_s") {
        assert!(started_at.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Requests more than sockets hold, reads it late, and returns the rows of `stats slow`.
fn read_late(config: Config) -> HashMap<String, String> {
    const VALUE_BYTES: usize = 500_000;
    const GETS: usize = 40;
    let server = start(Config { slow_ms: 50, ..config }).unwrap();
    let mut client = Client(BufReader::new(live_server::connect(&server)));
    assert!(!client.stats("slow").contains_key("0:command"));
    let value = "v".repeat(VALUE_BYTES);
    client.send(&format!("set large:1 0 0 {VALUE_BYTES}\r\n{value}\r\n"));
    assert_eq!(client.read_line(), "STORED");
    client.send(&"get large:1\r\n".repeat(GETS));
    std::thread::sleep(Duration::from_millis(200));
    (0..GETS).for_each(|_| assert!(client.read_hit()));
    let started_at = Instant::now();
    loop {
        let slow = client.stats("slow");
        if slow.contains_key("0:command") || started_at.elapsed() >= PATIENCE {
            return slow;
        }
    }
}

#[test]
fn a_reply_that_its_client_reads_late_is_slow_because_of_the_socket() {
    let slow = read_late(live_server::config());
    let row = |name: &str| slow.get(&format!("0:{name}")).map(String::as_str);
    assert_eq!([row("command"), row("key")], [Some("get"), Some("large:1")], "{slow:?}");
    assert_eq!(row("waited_for"), Some("socket"), "{slow:?}");
    let number = |name: &str| -> u64 { row(name).unwrap().parse().unwrap() };
    assert!((50_000..=number("time_us")).contains(&number("waited_us")), "{slow:?}");
    assert!(number("bytes") > 1_000_000, "{slow:?}");
    assert!(row("client").unwrap().starts_with("127.0.0.1:"), "{slow:?}");
}

#[test]
fn slow_commands_have_no_keys_where_these_must_not_be_listed() {
    let slow = read_late(Config { dump_enabled: false, ..live_server::config() });
    assert!(slow.contains_key("0:command") && !slow.contains_key("0:key"), "{slow:?}");
}

#[test]
fn commands_are_measured_by_what_they_do() {
    let server = start(live_server::config()).unwrap();
    let mut client = Client(BufReader::new(live_server::connect(&server)));
    for _ in 0..400 {
        client.send("set a 0 0 1\r\n1\r\nincr a 1\r\nget a\r\nmd b\r\n");
        assert_eq!([client.read_line(), client.read_line()], ["STORED", "2"]);
        assert!(client.read_hit());
        assert_eq!(client.read_line(), "NF");
    }
    let latency = client.stats("latency");
    for command in ["set", "arith", "get", "delete"] {
        let count: u64 = latency[&format!("{command}:count")].parse().unwrap();
        assert!((1..400).contains(&count), "{command}: {count}");
        let percentile =
            |share: &str| -> f64 { latency[&format!("{command}:{share}_us")].parse().unwrap() };
        assert!(0.0 < percentile("p50") && percentile("p50") <= percentile("p999"), "{latency:?}");
    }
    assert_eq!(latency["touch:count"], "0");
}

#[test]
fn a_tuned_policy_reports_its_settings_and_why_they_stay() {
    for (tuning_goal, mode, waiting) in [
        (
            Some(TuningGoal::Objects),
            "tuned",
            "the cache started, was resized or was flushed a short time ago",
        ),
        (None, "fixed", "the settings are fixed; -o policy=tuned lets them follow the load"),
    ] {
        let server = start(Config { tuning_goal, ..live_server::config() }).unwrap();
        let mut client = Client(BufReader::new(live_server::connect(&server)));
        let started_at = Instant::now();
        // The thread that evaluates the load may not have begun.
        let policy = loop {
            let policy = client.stats("policy");
            if policy["mode"] == mode {
                break policy;
            }
            assert!(started_at.elapsed() < PATIENCE, "{policy:?}");
        };
        assert_eq!(policy["waiting"], waiting);
        assert_eq!(policy["settings"], "small=10%,main=1,ghost-main=0,ghost=50%,skip=5%");
        assert_eq!((&*policy["switches"], &*policy["undos"], &*policy["windows"]), ("0", "0", "0"));
        assert!(!policy.contains_key("0:from"));
    }
}

#[test]
fn a_policy_that_is_tuned_where_nothing_is_evicted_is_refused() {
    let tuning_goal = Some(TuningGoal::Bytes);
    let config = Config { tuning_goal, evict: false, ..live_server::config() };
    let refusal = start(config).err().map(|error| error.to_string()).unwrap();
    assert!(refusal.contains("-M") && refusal.contains("no effect"), "{refusal}");
}

#[test]
fn a_fill_under_a_lease_is_what_misses_are_weighed_by_under_the_goal_of_time() {
    let config = Config { tuning_goal: Some(TuningGoal::Time), ..live_server::config() };
    let server = start(config).unwrap();
    let mut client = Client(BufReader::new(live_server::connect(&server)));
    let started_at = Instant::now();
    let wait_for = |client: &mut Client, weighing: &str| loop {
        let policy = client.stats("policy");
        if policy.get("weighing").is_some_and(|row| row == weighing) {
            break policy;
        }
        assert!(started_at.elapsed() < PATIENCE, "{policy:?}");
    };
    let unmeasured =
        "every miss counts alike, because no client has filled one under a lease so far";
    let policy = wait_for(&mut client, unmeasured);
    assert_eq!((&*policy["goal"], policy.get("mean_fill_us")), ("time", None));
    // Until the thread that evaluates the load has begun, nothing is sampled.
    client.send("mg a t N30\r\n");
    assert!(client.read_line().ends_with(" W"));
    client.send("set a 0 0 1\r\n1\r\n");
    assert_eq!(client.read_line(), "STORED");
    let policy = wait_for(&mut client, "a miss counts the time in which clients filled its key");
    assert!(policy["mean_fill_us"].parse::<u64>().unwrap() > 0, "{policy:?}");
}
