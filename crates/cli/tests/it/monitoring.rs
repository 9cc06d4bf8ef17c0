//! The files in `deploy/monitoring/`: the alerts pass their tests, and the dashboard is one that Grafana can show.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::server::Server;

fn find_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring")
}

fn read_dashboard() -> Value {
    let text = std::fs::read_to_string(find_folder().join("dashboard.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The words of a text that begin as the names of metrics do.
fn find_metrics(text: &str) -> BTreeSet<String> {
    let is_separator = |c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c));
    let words = text.split(is_separator);
    let is_metric = |word: &&str| {
        ["memcached_", "glasscache_", "instance:memcached_"]
            .iter()
            .any(|prefix| word.starts_with(prefix))
    };
    words.filter(is_metric).map(str::to_owned).collect()
}

fn list_expressions(dashboard: &Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap()).collect()
}

#[test]
fn the_alerts_pass_their_tests() {
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        match Command::new("promtool").args(arguments).current_dir(find_folder()).output() {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(error) => {
                eprintln!(
                    "left out: promtool ({error}); on Debian it is in the package prometheus"
                );
                return;
            }
        }
    }
}

#[test]
fn the_panels_of_the_dashboard_have_queries_and_do_not_overlap() {
    let dashboard = read_dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut cells = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["id"]);
        for field in ["title", "description", "type"] {
            assert!(!panel[field].as_str().unwrap().is_empty(), "{panel}");
        }
        let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(side("x") + side("w") <= 24, "{panel}");
        for x in side("x")..side("x") + side("w") {
            for y in side("y")..side("y") + side("h") {
                assert!(cells.insert((x, y)), "overlap: {panel}");
            }
        }
    }
    let expressions = list_expressions(&dashboard);
    assert!(expressions.len() >= panels.len() && panels.len() >= 15);
    for expression in expressions {
        assert!(!find_metrics(expression).is_empty(), "{expression}");
        let (opened, closed) = (expression.matches('(').count(), expression.matches(')').count());
        assert_eq!(opened, closed, "{expression}");
        assert!(expression.contains("instance=~\"$instance\""), "{expression}");
    }
}

/// The names of the metrics of a server with one item, from its `/metrics`.
fn read_metric_names() -> BTreeSet<String> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let server = Server::start(&["--metrics", &address]);
    assert_eq!(server.connect().request("set k 0 0 1\r\nx\r\n"), "STORED");
    let mut reply = String::new();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream
        .write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
        .unwrap();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let types = reply.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn each_metric_of_the_alerts_and_the_dashboard_is_one_of_the_server() {
    let names = read_metric_names();
    let alerts = std::fs::read_to_string(find_folder().join("alerts.yml")).unwrap();
    let expressions = list_expressions(&read_dashboard()).join(" ");
    // Comments name the exporter.
    let alerts: Vec<&str> = alerts.lines().filter(|line| !line.starts_with('#')).collect();
    let is_unknown = |name: &String| !name.starts_with("instance:") && !names.contains(name);
    let used = find_metrics(&(alerts.join(" ") + " " + &expressions));
    let unknown: Vec<String> = used.into_iter().filter(is_unknown).collect();
    assert_eq!(unknown, Vec::<String>::new());
}
