//! `ping`, `get`, `set`, `delete`, `stats` and `keys` against our server: what they print and exit with.

use std::io::Write;
use std::process::Stdio;

use crate::server::{Server, glasscache};

struct Said {
    code: i32,
    out: String,
    err: String,
}

fn run(server: &str, arguments: &[&str], input: &str) -> Said {
    let mut child = glasscache()
        .args(arguments)
        .env("GLASSCACHE_SERVER", server)
        .args(["--timeout-ms", "10000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that reads no input may be gone before this is written.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn values_go_in_and_come_out() {
    let server = Server::start(&[]);
    let address = format!("127.0.0.1:{}", server.port());
    let say = |arguments: &[&str]| run(&address, arguments, "from stdin");
    assert_eq!(
        say(&["set", "greeting", "hello", "--flags", "7"]).out,
        "stored\n"
    );
    assert_eq!(say(&["get", "greeting"]).out, "hello");
    assert_eq!(say(&["set", "piped"]).code, 0);
    assert_eq!(say(&["get", "piped"]).out, "from stdin");
    let json = say(&["get", "greeting", "nothing", "--json"]);
    assert_eq!(json.code, 1);
    let first: serde_json::Value = serde_json::from_str(json.out.lines().next().unwrap()).unwrap();
    assert_eq!(first["value"], "hello");
    assert_eq!(first["flags"], 7);
    let refused = say(&["set", "greeting", "again", "--add"]);
    assert_eq!((refused.code, refused.out.as_str()), (1, "not stored\n"));
    assert_eq!(
        say(&["set", "greeting", "later", "--replace", "--ttl", "9999999"]).code,
        0
    );
    assert_eq!(say(&["get", "greeting"]).out, "later");
    assert_eq!(say(&["delete", "greeting"]).code, 0);
    let missing = say(&["delete", "greeting"]);
    assert_eq!(
        (missing.code, missing.out.as_str()),
        (1, "greeting: not there\n")
    );
}

#[test]
fn servers_tell_their_version_counters_and_keys() {
    let server = Server::start(&[]);
    let address = format!("127.0.0.1:{}", server.port());
    let say = |arguments: &[&str]| run(&address, arguments, "");
    assert!(say(&["ping"]).out.starts_with(&format!("{address} 1.6.")));
    say(&["set", "a%b", "x"]);
    assert_eq!(say(&["keys"]).out, "a%b\n");
    assert!(say(&["keys", "--long"]).out.contains("size="));
    assert_eq!(say(&["keys", "--limit", "0"]).out, "");
    let stats: serde_json::Value = serde_json::from_str(&say(&["stats", "--json"]).out).unwrap();
    assert_eq!(stats["rows"]["curr_items"], 1);
    assert!(say(&["stats", "settings"]).out.contains("item_size_max"));
}

#[test]
fn exit_codes_tell_usage_from_absence() {
    let nobody = "127.0.0.1:1";
    let unreachable = run(nobody, &["ping"], "");
    assert_eq!(unreachable.code, 3, "{}", unreachable.err);
    assert!(unreachable.err.contains("hint: "), "{}", unreachable.err);
    assert_eq!(run(nobody, &["keys"], "").code, 3);
    let usage = run(nobody, &["get", "a b"], "");
    assert_eq!(usage.code, 2);
    assert!(
        usage.err.contains("must be 1 to 250 bytes"),
        "{}",
        usage.err
    );
    assert_eq!(run("no port:x", &["ping"], "").code, 2);
}
