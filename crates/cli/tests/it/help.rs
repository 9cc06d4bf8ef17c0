//! Help texts, as snapshots (`cargo insta review`).

use crate::server::glasscache;

fn read_help(arguments: &[&str]) -> String {
    let output = glasscache().args(arguments).env("COLUMNS", "100").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_of_serve_is_unchanged() {
    insta::assert_snapshot!("serve", read_help(&["serve", "-h"]));
}

#[test]
fn help_of_the_small_commands_is_unchanged() {
    for name in ["stop", "ping", "get", "set", "delete", "stats", "keys", "config"] {
        insta::assert_snapshot!(name, read_help(&[name, "-h"]));
    }
}

#[test]
fn help_contains_what_memcacheds_tests_search_for() {
    let text = read_help(&["serve", "-h"]);
    assert!(text.contains("unix-socket") && text.contains("enable-sasl"));
    assert!(text.contains("enable-ssl"));
    for absent_option in ["ext_path", "proxy_config", "no_drop_privileges"] {
        assert!(!text.to_lowercase().contains(absent_option), "{absent_option} is not here");
    }
}
