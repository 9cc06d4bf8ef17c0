//! The memory file of a server, from one server of this process to the next: what comes back, and what is refused.
//!
//! The same with processes, signals and kills is in the tests of the program (`crates/cli/tests/it/restart.rs`).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "one of several files of tests that share it")]
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::live_server;
use crate::live_server::{connect, expect_reply};
use glasscache_server::{Config, RunningServer, start};
use tempfile::TempDir;

/// A folder with the memory file of one server after the other.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn memory_file(&self) -> PathBuf {
        self.0.path().join("memory")
    }

    fn snapshot_path(&self) -> PathBuf {
        self.0.path().join("memory.meta")
    }

    fn config(&self) -> Config {
        Config {
            memory_bytes: 8 << 20,
            memory_file: Some(self.memory_file()),
            ..live_server::config()
        }
    }

    fn start(&self) -> RunningServer {
        start(self.config()).unwrap()
    }

    /// The sentence with which a start fails.
    fn start_refusal(&self) -> String {
        match start(self.config()) {
            Ok(_) => panic!("the server started"),
            Err(error) => error.to_string(),
        }
    }
}

fn stop_and_save(server: RunningServer) {
    server.stop_and_save();
    server.join();
}

fn has_key(server: &RunningServer) -> bool {
    let mut stream = connect(server);
    expect_reply(&mut stream, b"mg key v\r\nmn\r\n", b"");
    let mut reply = [0; 2];
    std::io::Read::read_exact(&mut stream, &mut reply).unwrap();
    match &reply {
        b"VA" => true,
        b"EN" => false,
        other_reply => panic!("{other_reply:?}"),
    }
}

/// A server that stored one item, saved.
fn folder_with_saved_item() -> Folder {
    let folder = Folder::new();
    let server = folder.start();
    expect_reply(&mut connect(&server), b"set key 0 0 5\r\nvalue\r\n", b"STORED\r\n");
    stop_and_save(server);
    folder
}

#[test]
fn items_of_every_kind_come_back_after_a_stop_that_saves() {
    let folder = Folder::new();
    let server = folder.start();
    assert!(!folder.snapshot_path().exists());
    let mut stream = connect(&server);
    let large_value = vec![b'x'; 700_000];
    let set_large = [b"set large 7 0 700000\r\n", &large_value[..], b"\r\n"].concat();
    expect_reply(&mut stream, &set_large, b"STORED\r\n");
    expect_reply(&mut stream, b"set plain 0 0 5\r\nvalue\r\n", b"STORED\r\n");
    expect_reply(&mut stream, b"ms lease 1 T1000 F3\r\nx\r\n", b"HD\r\n");
    expect_reply(&mut stream, b"md lease I T30\r\n", b"HD\r\n");
    expect_reply(&mut stream, b"mg lease v\r\n", b"VA 1 X W\r\nx\r\n");
    expect_reply(&mut stream, b"set gone 0 0 1\r\nx\r\ndelete gone\r\n", b"STORED\r\nDELETED\r\n");
    expect_reply(&mut stream, b"ms known 1 E77\r\nx\r\n", b"HD\r\n");
    expect_reply(
        &mut stream,
        b"set space:a 0 0 1\r\nx\r\nflush_prefix space:\r\n",
        b"STORED\r\nOK\r\n",
    );
    stop_and_save(server);
    assert!(folder.snapshot_path().exists());
    let server = folder.start();
    assert!(!folder.snapshot_path().exists(), "removed before the first request");
    let mut stream = connect(&server);
    let value = [b"VALUE large 7 700000\r\n", &large_value[..], b"\r\nEND\r\n"].concat();
    expect_reply(&mut stream, b"get large\r\n", &value);
    expect_reply(
        &mut stream,
        b"get plain gone space:a\r\n",
        b"VALUE plain 0 5\r\nvalue\r\nEND\r\n",
    );
    expect_reply(&mut stream, b"mg lease v f\r\n", b"VA 1 f3 Z X\r\nx\r\n");
    expect_reply(&mut stream, b"gets known\r\n", b"VALUE known 0 1 77\r\nx\r\nEND\r\n");
    let read_row = |name: &str| read_statistic(&server, "", name);
    // The flushed item counted until it was looked for.
    assert_eq!(read_row("curr_items"), "4");
    assert_eq!(read_row("total_items"), "5");
    let path = folder.memory_file().display().to_string();
    assert_eq!(read_statistic(&server, " settings", "memory_file"), path);
    // And once more.
    stop_and_save(server);
    let server = folder.start();
    expect_reply(&mut connect(&server), b"get plain\r\n", b"VALUE plain 0 5\r\nvalue\r\nEND\r\n");
}

fn read_statistic(server: &RunningServer, group: &str, name: &str) -> String {
    use std::io::{BufRead, BufReader, Write};
    let mut stream = connect(server);
    stream.write_all(format!("stats{group}\r\n").as_bytes()).unwrap();
    let row_start = format!("STAT {name} ");
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut lines = lines.take_while(|line| line != "END");
    let value = lines.find_map(|line| line.strip_prefix(&row_start).map(ToOwned::to_owned));
    value.unwrap_or_else(|| panic!("no row {name}"))
}

#[test]
fn a_plain_stop_saves_nothing() {
    let folder = folder_with_saved_item();
    let server = folder.start();
    assert!(has_key(&server));
    server.stop();
    server.join();
    assert!(!folder.snapshot_path().exists());
    assert!(!has_key(&folder.start()));
}

#[test]
fn the_time_without_a_server_counts_towards_a_ttl() {
    let folder = Folder::new();
    let server = folder.start();
    let mut stream = connect(&server);
    expect_reply(&mut stream, b"set short 0 1 1\r\nx\r\n", b"STORED\r\n");
    expect_reply(&mut stream, b"set long 0 10000 1\r\nx\r\n", b"STORED\r\n");
    stop_and_save(server);
    let stopped_at = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    let server = folder.start();
    let mut stream = connect(&server);
    expect_reply(&mut stream, b"get short\r\nmg long t\r\n", b"END\r\nHD t");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    let ttl_s: u64 = line.trim_end().parse().unwrap();
    assert!(ttl_s <= 9998, "{ttl_s}");
    // A machine may be slow, before the stop as well.
    assert!(ttl_s >= 9980 - stopped_at.elapsed().as_secs(), "{ttl_s}");
}

#[test]
fn a_memory_file_serves_one_server_at_a_time() {
    let folder = Folder::new();
    let server = folder.start();
    let sentence = folder.start_refusal();
    assert!(sentence.contains("is in use by another server"), "{sentence}");
    expect_reply(&mut connect(&server), b"set key 0 0 5\r\nvalue\r\n", b"STORED\r\n");
    stop_and_save(server);
    assert!(has_key(&folder.start()));
}

#[test]
fn an_invalid_snapshot_fails_the_start() {
    for foreign_content in [&b""[..], b"Tmain\nKmaxbytes 67108864\n"] {
        let folder = Folder::new();
        fs::write(folder.snapshot_path(), foreign_content).unwrap();
        let sentence = folder.start_refusal();
        let expected = "memory.meta: is not the snapshot of a glasscache server; remove it";
        assert!(sentence.contains(expected), "{sentence}");
        assert!(!folder.memory_file().exists(), "a failed start leaves no file");
        assert_eq!(fs::read(folder.snapshot_path()).unwrap(), foreign_content);
    }
    let folder = folder_with_saved_item();
    fs::remove_file(folder.snapshot_path()).unwrap();
    fs::create_dir(folder.snapshot_path()).unwrap();
    let sentence = folder.start_refusal();
    assert!(sentence.contains("memory.meta: cannot be read"), "{sentence}");
    assert!(folder.memory_file().exists());
}

#[test]
fn a_snapshot_of_another_version_or_setting_or_with_damage_starts_empty() {
    let flip_bit = |folder: &Folder, offset: usize| {
        let mut snapshot = fs::read(folder.snapshot_path()).unwrap();
        let offset = offset.min(snapshot.len() - 1);
        snapshot[offset] ^= 1;
        fs::write(folder.snapshot_path(), snapshot).unwrap();
    };
    // The version, a field, the checksum.
    for offset in [8, 100, usize::MAX] {
        let folder = folder_with_saved_item();
        flip_bit(&folder, offset);
        let server = folder.start();
        assert!(!has_key(&server));
        assert!(!folder.snapshot_path().exists());
    }
    let folder = folder_with_saved_item();
    let other_config = Config { memory_bytes: 9 << 20, ..folder.config() };
    assert!(!has_key(&start(other_config).unwrap()));
    assert!(!has_key(&folder.start()));
}

#[test]
fn a_memory_that_was_changed_or_cut_starts_empty() {
    let folder = folder_with_saved_item();
    let file = fs::File::options().write(true).open(folder.memory_file()).unwrap();
    // To the start of the memory.
    file.set_len(2 << 20).unwrap();
    assert!(!has_key(&folder.start()));
    let folder = folder_with_saved_item();
    fs::remove_file(folder.memory_file()).unwrap();
    assert!(!has_key(&folder.start()));
    let folder = folder_with_saved_item();
    let mut memory = fs::read(folder.memory_file()).unwrap();
    let value_offset = memory.windows(8).position(|bytes| bytes == b"keyvalue").unwrap();
    memory[value_offset] ^= 1;
    fs::write(folder.memory_file(), memory).unwrap();
    assert!(!has_key(&folder.start()));
}

#[test]
fn another_number_of_workers_keeps_the_items() {
    let folder = folder_with_saved_item();
    for workers in [7, 1, 2] {
        let config = Config { workers, ..folder.config() };
        let server = start(config).unwrap();
        assert!(has_key(&server), "{workers} workers");
        stop_and_save(server);
    }
}

#[test]
fn a_file_with_something_else_is_refused_and_not_changed() {
    let folder = Folder::new();
    for text in ["x", "the only copy of a letter, longer than the magic bytes"] {
        fs::write(folder.memory_file(), text).unwrap();
        let sentence = folder.start_refusal();
        assert!(sentence.contains("is not the memory of a glasscache server"), "{sentence}");
        assert_eq!(fs::read_to_string(folder.memory_file()).unwrap(), text);
    }
    fs::remove_file(folder.memory_file()).unwrap();
    fs::create_dir(folder.memory_file()).unwrap();
    assert!(folder.start_refusal().contains("cannot be opened"));
    let target = folder.0.path().join("target");
    fs::remove_dir(folder.memory_file()).unwrap();
    std::os::unix::fs::symlink(&target, folder.memory_file()).unwrap();
    assert!(folder.start_refusal().contains("cannot be opened"));
    assert!(!target.exists());
}

#[test]
fn files_are_for_the_user_of_the_server_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder_with_saved_item();
    for file in [folder.memory_file(), folder.snapshot_path()] {
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777 & !0o600, 0, "{}", file.display());
    }
}

#[test]
fn a_full_file_system_is_an_error_at_the_start() {
    let folder = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    let file_system = rustix::fs::statvfs(folder.path()).unwrap();
    let memory_file = folder.path().join("memory");
    let config = Config {
        memory_bytes: (file_system.f_blocks * file_system.f_frsize + (1 << 30)) >> 20 << 20,
        memory_file: Some(memory_file.clone()),
        ..live_server::config()
    };
    let Err(error) = start(config) else { panic!("more than the file system holds") };
    let sentence = error.to_string();
    assert!(sentence.contains("cannot be allocated: No space left on device"), "{sentence}");
    assert!(!memory_file.exists(), "a failed start leaves no file");
}

#[test]
fn a_limit_above_the_size_of_the_file_is_refused() {
    let folder = folder_with_saved_item();
    let server = folder.start();
    let mut stream = connect(&server);
    expect_reply(&mut stream, b"cache_memlimit 8\r\n", b"OK\r\n");
    expect_reply(
        &mut stream,
        b"cache_memlimit 64\r\n",
        b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
    );
    assert!(has_key(&server));
    stop_and_save(server);
    assert!(has_key(&folder.start()));
}
