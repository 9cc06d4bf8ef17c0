//! HTTP over real sockets: metrics, health, who is refused, and peers that are slow or send anything.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use glasscache_server::{Config, HttpListen, HttpSettings, RunningServer, start};

use crate::live_server::{config, connect, expect_reply};

fn any_port() -> HttpListen {
    HttpListen { address: ([127, 0, 0, 1], 0).into(), host: None }
}

fn start_with(http: HttpSettings) -> RunningServer {
    start(Config { http, ..config() }).unwrap()
}

fn start_open() -> RunningServer {
    start_with(HttpSettings { main: Some(any_port()), ..HttpSettings::default() })
}

fn connect_http(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// The whole response to a request, text as far as it is.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = connect_http(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

fn get_with(address: SocketAddr, path: &str, fields: &str) -> String {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n"))
}

fn get(address: SocketAddr, path: &str) -> String {
    get_with(address, path, "")
}

fn status(response: &str) -> u16 {
    response.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap()
}

fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn metrics_have_the_types_and_labels_of_the_exporter_and_follow_the_commands() {
    let server = start_open();
    let address = server.http_addresses()[0];
    let mut client = connect(&server);
    expect_reply(&mut client, b"set key 0 0 5\r\nvalue\r\n", b"STORED\r\n");
    expect_reply(&mut client, b"get key none\r\n", b"VALUE key 0 5\r\nvalue\r\nEND\r\n");
    let response = get(address, "/metrics");
    assert!(
        response.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{response}"
    );
    let metrics = body(&response);
    for line in [
        "memcached_up 1",
        "# TYPE memcached_uptime_seconds counter",
        "# TYPE memcached_slab_items_evicted_time_seconds counter",
        "memcached_commands_total{command=\"get\",status=\"hit\"} 1",
        "memcached_commands_total{command=\"get\",status=\"miss\"} 1",
        "memcached_commands_total{command=\"set\",status=\"hit\"} 1",
        "memcached_current_items 1",
        "memcached_max_connections 1024",
        "memcached_lru_crawler_enabled 1",
        "# TYPE glasscache_loop_iterations_total counter",
        "glasscache_policy_info{mode=\"fixed\",settings=\"small=10%,main=1,ghost-main=0,ghost=50%,skip=5%\"} 1",
        "# TYPE glasscache_policy_switches_total counter",
        "# TYPE glasscache_policy_age_seconds gauge",
        "# TYPE glasscache_loop_iteration_duration_seconds histogram",
    ] {
        assert!(metrics.lines().any(|other| other == line), "{line}: {metrics}");
    }
    assert!(
        metrics.contains(
            "memcached_slab_commands_total{slab=\"1\",command=\"set\",status=\"hit\"} 1\n"
        )
    );
    assert!(!metrics.contains("# EOF"));
    let compressed = get_with(address, "/metrics", "Accept-Encoding: gzip\r\n");
    assert!(compressed.contains("Content-Encoding: gzip\r\n"));
    let head = exchange(address, "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(body(&head).is_empty() && status(&head) == 200);
}

#[test]
fn probes_report_health() {
    let server = start_open();
    let address = server.http_addresses()[0];
    for path in ["/healthz", "/livez", "/readyz"] {
        let response = get(address, path);
        assert_eq!((status(&response), body(&response)), (200, "ok\n"), "{path}");
    }
}

#[test]
fn a_token_protects_all_but_health_and_the_port_of_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "secret-token\n").unwrap();
    let main = Some(HttpListen { address: ([0, 0, 0, 0], 0).into(), host: None });
    let server =
        start_with(HttpSettings { main, token_file: Some(token_file), metrics: Some(any_port()) });
    let [main, metrics] = server.http_addresses() else { panic!("two ports") };
    let main = SocketAddr::from(([127, 0, 0, 1], main.port()));
    assert_eq!(status(&get(main, "/healthz")), 200);
    assert_eq!(status(&get(main, "/readyz")), 200);
    for fields in ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic secret-token\r\n"] {
        for path in ["/metrics", "/", "/api/stats", "/unknown"] {
            let response = get_with(main, path, fields);
            assert_eq!(status(&response), 401, "{path} {fields}");
            assert!(response.contains("WWW-Authenticate: Bearer\r\n"));
        }
    }
    assert_eq!(status(&get_with(main, "/metrics", "Authorization: Bearer secret-token\r\n")), 200);
    assert_eq!(status(&get(*metrics, "/metrics")), 200);
    assert_eq!(status(&get(*metrics, "/")), 404);
    assert_eq!(status(&get(*metrics, "/api/stats")), 404);
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let main = Some(HttpListen { address: ([0, 0, 0, 0], 0).into(), host: None });
    let refuse = |http| start(Config { http, ..config() }).err().unwrap().to_string();
    let refusal = refuse(HttpSettings { main: main.clone(), ..HttpSettings::default() });
    assert!(refusal.contains("add --http-token-file FILE"), "{refusal}");
    let token_file = Some("/nonexistent/token".into());
    let refusal = refuse(HttpSettings { main, token_file: token_file.clone(), metrics: None });
    assert!(refusal.contains("cannot be read"), "{refusal}");
    let refusal = refuse(HttpSettings { main: None, token_file, metrics: Some(any_port()) });
    assert!(refusal.contains("has no effect without http"), "{refusal}");
}

#[test]
fn pages_of_other_sites_and_other_methods_are_refused() {
    let server = start_open();
    let address = server.http_addresses()[0];
    let request = |host: &str, fields: &str| {
        status(&exchange(
            address,
            &format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"),
        ))
    };
    assert_eq!(request("evil.example", ""), 403);
    assert_eq!(request("localhost:1", ""), 200);
    assert_eq!(request("127.0.0.1", "Origin: http://evil.example\r\n"), 403);
    assert_eq!(request("127.0.0.1", "Origin: http://127.0.0.1\r\n"), 200);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT"] {
        let text =
            format!("{method} / HTTP/1.1\r\nHost: {address}\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(status(&exchange(address, &text)), 405, "{method}");
    }
    assert_eq!(status(&get(address, "/unknown")), 404);
    assert_eq!(status(&get(address, "/metrics?x=1")), 400);
    assert_eq!(
        status(&exchange(address, &format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9000)))),
        431
    );
}

#[test]
fn slow_peers_keep_neither_others_nor_the_cache_waiting() {
    let server = start_open();
    let address = server.http_addresses()[0];
    let mut client = connect(&server);
    expect_reply(&mut client, b"set key 0 0 5\r\nvalue\r\n", b"STORED\r\n");
    let mut slow_peers = Vec::new();
    for number in 0..1000 {
        if let Ok(mut stream) = TcpStream::connect(address) {
            let _ = stream.write_all(b"GET /metrics HT");
            slow_peers.push(stream);
        }
        if number % 50 == 0 {
            expect_reply(&mut client, b"get key\r\n", b"VALUE key 0 5\r\nvalue\r\nEND\r\n");
            assert_eq!(status(&get(address, "/healthz")), 200);
        }
    }
    assert_eq!(status(&get(address, "/metrics")), 200);
    let mut open_count = 0;
    for stream in &mut slow_peers {
        stream.set_nonblocking(true).unwrap();
        let outcome = stream.read(&mut [0; 16]);
        open_count +=
            usize::from(outcome.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    }
    assert!(
        open_count <= 64 + 128,
        "{open_count} are open: those served, and those in the kernel's queue"
    );
}

#[test]
fn a_head_that_is_never_complete_is_given_up() {
    let server = start_open();
    let mut stream = connect_http(server.http_addresses()[0]);
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let began_at = Instant::now();
    assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0, "closed without a response");
    assert!(began_at.elapsed() >= Duration::from_secs(1), "not at once");
}

#[test]
fn malformed_requests_get_one_response_or_a_close() {
    let server = start_open();
    let address = server.http_addresses()[0];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next_random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let parts = [
        "GET",
        " ",
        "/",
        "HTTP/1.1",
        "\r\n",
        "Host: 127.0.0.1",
        "\0",
        "\u{f6}",
        ":",
        "\n",
        "Content-Length: -1",
        "%",
        "?",
    ];
    for _ in 0..2000 {
        let mut text = String::new();
        for _ in 0..next_random() % 12 {
            let _ = write!(text, "{}", parts[next_random() as usize % parts.len()]);
        }
        let mut stream = connect_http(address);
        // The server may already have refused it and closed.
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        assert!(response.is_empty() || response.starts_with(b"HTTP/1.1 "), "{text:?}");
    }
    assert_eq!(status(&get(address, "/healthz")), 200);
}

#[test]
fn the_ports_are_closed_when_the_server_has_stopped() {
    let server = start_open();
    let address = server.http_addresses()[0];
    let open = connect_http(address);
    server.stop();
    server.join();
    assert!(TcpStream::connect(address).is_err());
    drop(open);
}

#[test]
fn the_interface_has_the_documented_fields() {
    let server = start_open();
    let address = server.http_addresses()[0];
    let mut client = connect(&server);
    expect_reply(&mut client, b"set key 0 0 5\r\nvalue\r\n", b"STORED\r\n");
    let read = |path: &str| -> serde_json::Value {
        let response = get(address, path);
        assert!(response.contains("Content-Type: application/json\r\n"), "{response}");
        serde_json::from_str(body(&response)).unwrap()
    };
    assert_eq!(read("/api/stats")["stats"]["curr_items"], 1);
    assert_eq!(read("/api/stats")["settings"]["maxconns"], 1024);
    let curve = read("/api/curve");
    for field in ["rows", "working_set_bytes", "unlimited_hit_ratio", "sampled_items", "state"] {
        assert!(!curve[field].is_null(), "{field}");
    }
    assert_eq!(curve["state"], "warming", "a server that has just started");
    let hot_keys = read("/api/hotkeys?by=bytes&window=1s");
    assert_eq!((&hot_keys["by"], &hot_keys["window_s"]), (&"bytes".into(), &1.into()));
    assert!(hot_keys["rows"].is_array() && read("/api/prefixes")["rows"].is_array());
    assert!(read("/api/findings")["findings"].is_array());
    let slow = read("/api/slow");
    assert!(slow["slow_ms"] == 100 && slow["total"].is_u64() && slow["rows"].is_array(), "{slow}");
    let policy = read("/api/policy");
    assert_eq!((&policy["mode"], &policy["small_percent"]), (&"fixed".into(), &10.into()));
    assert!(policy["waiting"].is_string() && policy["last_switches"].is_array(), "{policy}");
    let history = read("/api/history?step=1s");
    assert_eq!((&history["step_s"], &history["series"][0]["name"]), (&1.into(), &"gets".into()));
    for path in [
        "/api/hotkeys?window=2m",
        "/api/hotkeys?by=misses",
        "/api/hotkeys?limit=3",
        "/api/hotkeys?by=bytes&by=bytes",
        "/api/history?step=1h",
        "/api/curve?x",
        "/api/policy?x",
        "/?theme=dark",
    ] {
        assert_eq!(status(&get(address, path)), 400, "{path}");
    }
}

#[test]
fn keys_are_not_listed_where_that_is_off() {
    let http = HttpSettings { main: Some(any_port()), ..HttpSettings::default() };
    let server = start(Config { http, dump_enabled: false, ..config() }).unwrap();
    let address = server.http_addresses()[0];
    for path in ["/api/hotkeys", "/api/prefixes"] {
        assert_eq!(status(&get(address, path)), 403, "{path}");
    }
    assert!(body(&get(address, "/")).contains("Keys are not listed"));
}

#[test]
fn the_page_is_complete_and_requests_nothing_else() {
    let server = start_open();
    let response = get_with(server.http_addresses()[0], "/", "Accept: text/html\r\n");
    assert_eq!(status(&response), 200);
    assert!(response.contains("Content-Security-Policy: default-src 'none'"));
    let page = body(&response);
    assert!(page.len() <= 120 << 10, "{} bytes", page.len());
    for text in ["Findings", "operations a second", "Evictions", "</svg>", "id=\"pause\""] {
        assert!(page.contains(text), "{text}");
    }
    for text in ["http://", "https://", "src=", "url("] {
        assert!(
            !page.contains(text) || text == "http://" && !page.contains("href=\"http"),
            "{text}"
        );
    }
}

#[test]
fn a_browser_without_the_token_gets_a_page_that_requests_it() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "secret-token\n").unwrap();
    let http = HttpSettings { main: Some(any_port()), token_file: Some(token_file), metrics: None };
    let server = start_with(http);
    let address = server.http_addresses()[0];
    let response = get_with(address, "/", "Accept: text/html\r\n");
    assert_eq!(status(&response), 401);
    assert!(response.contains("WWW-Authenticate: Bearer\r\n"));
    assert!(body(&response).contains("id=\"login\"") && !response.contains("uptime"));
    let response = get_with(address, "/", "Authorization: Bearer secret-token\r\n");
    assert!(body(&response).contains("operations a second"));
}

#[test]
fn events_update_every_section_and_streams_are_bounded() {
    let server = start_open();
    let address = server.http_addresses()[0];
    let request = format!("GET /api/events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut stream = connect_http(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    let mut buffer = [0; 8192];
    while text.matches("\ndata: ").count() < 2 || !text.ends_with("\n\n") {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "{text}");
        text += &String::from_utf8_lossy(&buffer[..length]);
    }
    assert!(text.contains("Content-Type: text/event-stream\r\n"));
    let event = text.split("data: ").nth(1).unwrap().split("\n\n").next().unwrap();
    let sections: serde_json::Value = serde_json::from_str(event).unwrap();
    for id in ["head", "findings", "figures", "curve", "connections"] {
        assert!(sections[id].is_string(), "{id}");
    }
    let mut others = Vec::new();
    for _ in 0..15 {
        let mut other = connect_http(address);
        other.write_all(request.as_bytes()).unwrap();
        assert!(other.read(&mut buffer).unwrap() > 0);
        others.push(other);
    }
    assert_eq!(status(&exchange(address, &request)), 503);
    drop(others);
    assert_eq!(status(&get(address, "/readyz")), 200);
}
