//! The memory of a server process as the kernel counts it: locked (`-k`), given back, and mapped where little may be.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};

use crate::server::{Server, TestConnection, glasscache};

/// `-m` of these servers, in MiB.
const MEMORY_MIB: usize = 64;
/// What a server may have resident beside its program file, whose size depends on how it was compiled: `-m` and a
/// twentieth, and 4 MiB for libraries, stacks and what a worker has before the first item.
const RESIDENT_KIB_MAX: usize = MEMORY_MIB * 1024 * 105 / 100 + 4 * 1024;
/// How long the release of memory may take on a busy machine.
const RELEASE_TIMEOUT: Duration = Duration::from_mins(1);

/// Resident and locked memory of a process in KiB, as its map sums them up, without the pages of its program file.
#[derive(Debug, Clone, Copy)]
struct Footprint {
    resident_kib: usize,
    locked_kib: usize,
}

fn read_footprint(server: &Server) -> Footprint {
    let folder = format!("/proc/{}", server.id());
    let map = std::fs::read_to_string(format!("{folder}/smaps")).unwrap();
    let program = std::fs::read_link(format!("{folder}/exe")).unwrap();
    let program = program.to_str().unwrap();
    let mut footprint = Footprint { resident_kib: 0, locked_kib: 0 };
    let mut is_program = false;
    for line in map.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let mut kib = || words.next()?.parse::<usize>().ok();
        match name {
            // The first line of a mapping: addresses, rights, offset, device, inode and the file.
            _ if !name.ends_with(':') => is_program = line.ends_with(program),
            "Rss:" if !is_program => footprint.resident_kib += kib().unwrap(),
            "Locked:" if !is_program => footprint.locked_kib += kib().unwrap(),
            _ => {}
        }
    }
    assert!(footprint.resident_kib > 0, "{map}");
    footprint
}

fn check_footprint(server: &Server, when: &str) -> Footprint {
    let footprint = read_footprint(server);
    eprintln!("-m {MEMORY_MIB} -k {when}: {footprint:?} (at most {RESIDENT_KIB_MAX} KiB each)");
    assert!(footprint.resident_kib <= RESIDENT_KIB_MAX, "{when}: {footprint:?}");
    assert!(footprint.locked_kib <= RESIDENT_KIB_MAX, "{when}: {footprint:?}");
    footprint
}

/// Stores this many values of 10 KB, in batches that end with a command that has a reply.
fn store_values(connection: &mut TestConnection, value_count: usize) {
    for batch in 0..value_count / 100 {
        let mut request = Vec::new();
        for number in 0..100 {
            let command_line = format!("set key{} 0 0 10000 noreply\r\n", batch * 100 + number);
            request.extend_from_slice(command_line.as_bytes());
            request.resize(request.len() + 10_000, b'v');
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"mn\r\n");
        connection.send(&request);
        assert_eq!(connection.read_line(), "MN");
    }
}

#[test]
fn locked_memory_stays_within_the_limit_and_is_released() {
    if !may_lock() {
        eprintln!("not run: this user may lock less than the test needs (ulimit -l)");
        return;
    }
    let memory_text = MEMORY_MIB.to_string();
    let server = Server::start(&["-m", &memory_text, "-k"]);
    check_footprint(&server, "after the start");
    let mut connection = server.connect();
    // Twice what fits.
    store_values(&mut connection, 12_800);
    let full_footprint = check_footprint(&server, "when full");
    assert!(
        full_footprint.locked_kib >= MEMORY_MIB * 1024 * 9 / 10,
        "what is stored is not locked: {full_footprint:?}"
    );
    for number in 6_400..9_600 {
        connection.send(format!("delete key{number} noreply\r\n").as_bytes());
    }
    assert_eq!(connection.request("flush_all\r\n"), "OK");
    store_values(&mut connection, 6_400);
    check_footprint(&server, "after deletes, a flush and another fill");
    assert_eq!(connection.request("cache_memlimit 16\r\n"), "OK");
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    let wanted_kib = full_footprint.locked_kib / 2;
    while read_footprint(&server).locked_kib > wanted_kib && Instant::now() < deadline {
        // Each write releases part of the memory above the new limit.
        store_values(&mut connection, 100);
    }
    let small_footprint = check_footprint(&server, "with the limit lowered to 16 MiB");
    assert!(
        small_footprint.locked_kib <= wanted_kib
            && small_footprint.resident_kib <= full_footprint.resident_kib / 2 + 16 * 1024,
        "not given back: {small_footprint:?}"
    );
}

/// Whether this user may lock what the server maps: four times its limit and itself.
fn may_lock() -> bool {
    if Uid::effective().is_root() {
        return true;
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).maximum;
    limit.is_none_or(|bytes| bytes >= (MEMORY_MIB as u64 * 8) << 20)
}

#[test]
fn a_server_that_may_not_lock_its_memory_warns_and_serves() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -l 64; exec \"$@\"", "sh"]);
    let glasscache_command = glasscache();
    command.arg(glasscache_command.get_program());
    command.args(["serve", "-p", "-1", "-m", "8", "-k"]);
    // The limit does not hold for root.
    if Uid::effective().is_root() {
        let user = User::from_name("nobody").unwrap().unwrap();
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    let mut server = Server::run_with_stderr(command, Stdio::piped());
    assert_eq!(server.connect().request("mn\r\n"), "MN");
    let mut stderr = server.take_stderr();
    drop(server);
    let mut text = String::new();
    stderr.read_to_string(&mut text).unwrap();
    assert!(text.contains("lock-memory (-k) has no effect: mlockall failed: "), "{text}");
    // Beyond the limit: ENOMEM.
    assert!(text.contains("(os error 12); the server goes on"), "{text}");
}

#[test]
fn a_server_starts_with_little_address_space() {
    let mut command = Command::new("sh");
    // -m 512 maps 2 GiB of addresses at best; 1,200,000 KiB have room for 512 MiB plus program and stacks.
    command.args(["-c", "ulimit -v 1200000; exec \"$@\"", "sh"]);
    let glasscache_command = glasscache();
    command.arg(glasscache_command.get_program());
    command.args(["serve", "-p", "-1", "-u", "root", "-m", "512", "-t", "2"]);
    let server = Server::run(command);
    let mut connection = server.connect();
    store_values(&mut connection, 1_000);
    assert_eq!(connection.request("get key999\r\n"), "VALUE key999 0 10000");
    let _ = connection.read_through(b"END\r\n");
    assert_eq!(connection.request("cache_memlimit 400\r\n"), "OK");
    assert!(connection.request("cache_memlimit 1024\r\n").starts_with("MEMLIMIT_ADJUST_FAILED"));
}
