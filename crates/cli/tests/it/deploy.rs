//! The files in `deploy/` use existing settings and are hardened as documented.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::glasscache;

fn find_deploy_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn read_deploy_file(name: &str) -> String {
    std::fs::read_to_string(find_deploy_file(name)).unwrap()
}

/// Asserts that a server would accept these arguments.
fn assert_settings_are_accepted(arguments: &[&str]) {
    let output =
        glasscache().args(["config", "check", "--offline"]).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {text}");
}

#[test]
fn accepts_the_settings_of_the_systemd_unit() {
    let unit = read_deploy_file("glasscache.service");
    let unit_command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let settings_file = find_deploy_file("glasscache.toml");
    let command_line =
        unit_command.replace("/etc/glasscache/glasscache.toml", settings_file.to_str().unwrap());
    let arguments: Vec<&str> = command_line.split(' ').collect();
    assert_eq!(arguments[1], "serve");
    assert_settings_are_accepted(&arguments[2..]);
}

#[test]
fn the_drop_in_for_warm_restarts_keeps_its_file_in_the_units_folder() {
    let (unit, drop_in) =
        (read_deploy_file("glasscache.service"), read_deploy_file("warm-restart.conf"));
    let variable = drop_in.lines().find_map(|line| line.strip_prefix("Environment=")).unwrap();
    let (name, file) = variable.split_once('=').unwrap();
    let settings = glasscache().args(["config", "show"]).env(name, file).output().unwrap().stdout;
    let settings = String::from_utf8(settings).unwrap();
    assert!(settings.contains(&format!("memory-file = \"{file}\"\n")), "{settings}");
    let folder = unit.lines().find_map(|line| line.strip_prefix("RuntimeDirectory=")).unwrap();
    assert!(file.starts_with(&format!("/run/{folder}/")), "{file}");
    for line in ["RuntimeDirectoryPreserve=restart", "Environment=GLASSCACHE_EXTENDED=save_on_term"]
    {
        assert!(drop_in.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn accepts_the_containers_arguments_which_do_not_use_root() {
    let containerfile = read_deploy_file("Containerfile");
    let parse_line_after = |start: &str| -> Vec<String> {
        let line = containerfile.lines().find_map(|line| line.trim_start().strip_prefix(start));
        serde_json::from_str(line.unwrap()).unwrap()
    };
    let after_entrypoint = containerfile.rsplit_once("ENTRYPOINT").unwrap().1;
    let command_json = after_entrypoint.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let command: Vec<String> = serde_json::from_str(command_json).unwrap();
    assert_eq!(command, ["serve"]);
    let environment = containerfile.lines().find_map(|line| line.strip_prefix("ENV ")).unwrap();
    let mut show = glasscache();
    show.args(["config", "show", "-m", "64", "-c", "1024"]);
    show.envs(environment.split(' ').filter_map(|pair| pair.split_once('=')));
    let settings = String::from_utf8(show.output().unwrap().stdout).unwrap();
    assert!(settings.contains("listen = \"0.0.0.0\"\npublic = true\n"), "{settings}");
    let health = parse_line_after("CMD ");
    assert_eq!(health[1], "ping");
    // The command line is valid, so the exit code says that no server replied (3), not that it is wrong (2).
    let mut ping = glasscache();
    ping.args(&health[1..]).env("GLASSCACHE_SERVER", "127.0.0.1:1");
    assert_eq!(ping.output().unwrap().status.code(), Some(3));
    let user = containerfile.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    assert!(!user.starts_with('0') && !user.contains("root"), "{user}");
}

#[test]
fn what_the_container_copies_is_not_ignored() {
    let containerfile = read_deploy_file("Containerfile");
    let source = containerfile.lines().find_map(|line| line.strip_prefix("COPY ")).unwrap();
    let folder = source.split(' ').next().unwrap().trim_end_matches('/');
    let ignored = read_deploy_file("../.dockerignore");
    assert!(ignored.lines().any(|line| line.strip_prefix('!') == Some(folder)), "{ignored}");
    let builds = read_deploy_file("../scripts/dist");
    assert!(
        builds.contains("out=build/dist\n") && builds.contains("\"$out/container/"),
        "{folder}"
    );
}

#[test]
fn the_unit_is_hardened_as_documented() {
    let analyze = Command::new("systemd-analyze")
        .args(["security", "--offline=yes", "--no-pager", "--threshold=15"])
        .arg(find_deploy_file("glasscache.service"))
        .output();
    let Ok(output) = analyze else {
        eprintln!("no systemd-analyze: the exposure of the unit is not checked");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
}
