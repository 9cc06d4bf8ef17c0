//! Handovers inside of one process: successors that end or are given up at each step, and what stays behind.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::JoinHandle;

use super::*;
use crate::shared::address::Address;
use crate::shared::config::{Config, Listen};
use crate::shared::control_channel::{Frame, control_path};
use crate::{Error, PreparedServer, RunningServer, prepare_replacement, start};

const TIMEOUT: Duration = Duration::from_mins(1);

fn config(memory_file: &Path, memory_bytes: u64) -> Config {
    Config {
        listeners: vec![Listen::Tcp(([127, 0, 0, 1], 0).into())],
        memory_bytes,
        workers: 2,
        memory_file: Some(memory_file.to_owned()),
        ..Config::default()
    }
}

fn address(server: &RunningServer) -> SocketAddr {
    match server.addresses().first() {
        Some(Address::Tcp(address)) => *address,
        _ => panic!("no port"),
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Client(BufReader::new(stream))
    }

    fn request(&mut self, request: &[u8]) -> String {
        self.0.get_mut().write_all(request).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }
}

/// Does `steps` steps of the handover as a successor, and then ends.
fn run_successor_for(steps: usize, memory_file: &Path) {
    let channel = ControlChannel::connect(&control_path(memory_file), TIMEOUT).unwrap();
    let mut hello = FieldWriter::default();
    hello.u32(CONTROL_VERSION);
    hello.u64(1000);
    if steps > 0 {
        channel.send(FrameKind::Hello, &hello.0, &[]).unwrap();
    }
    if steps > 1 {
        assert_eq!(channel.receive().unwrap().kind, FrameKind::Offer);
    }
    if steps > 2 {
        channel.send(FrameKind::Ready, &[], &[]).unwrap();
    }
    for _ in 3..steps {
        let frame = channel.receive().unwrap();
        if frame.kind == FrameKind::Memory {
            break;
        }
        assert_eq!(frame.kind, FrameKind::Connections);
    }
}

/// Takes over from the server, which pauses until the result is started or dropped.
fn take_over(config: Config) -> Result<PreparedServer, Error> {
    prepare_replacement(config).unwrap().connect()?.take_over()
}

/// Makes the next handover pass through this test, which receives each frame and may change its body.
fn relay(
    memory_file: &Path,
    mut on_frame: impl FnMut(FrameKind, &mut Vec<u8>) + Send + 'static,
) -> JoinHandle<Option<FrameKind>> {
    let path = control_path(memory_file);
    let server_path = path.with_extension("server");
    fs::rename(&path, &server_path).unwrap();
    let control_socket = ControlSocket::bind(path.clone()).unwrap();
    std::thread::spawn(move || {
        let successor = control_socket.accept(TIMEOUT).unwrap();
        let server = ControlChannel::connect(&server_path, TIMEOUT).unwrap();
        fs::rename(&server_path, &path).unwrap();
        let mut relay_frame = |from: &ControlChannel, to: &ControlChannel| {
            let Frame { kind, mut body, descriptors } = from.receive().ok()?;
            on_frame(kind, &mut body);
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            to.send(kind, &body, &descriptors).ok()?;
            Some(kind)
        };
        relay_frame(&successor, &server)?;
        relay_frame(&server, &successor)?;
        relay_frame(&successor, &server)?;
        while relay_frame(&server, &successor)? != FrameKind::Memory {}
        relay_frame(&successor, &server)?;
        relay_frame(&server, &successor)
    })
}

/// Reads a counter of `stats glasscache`.
fn read_counter(client: &mut Client, name: &str) -> u64 {
    let mut line = client.request(b"stats glasscache\r\n");
    let mut value = None;
    while line != "END\r\n" {
        if let Some(text) = line.strip_prefix(&format!("STAT {name} ")) {
            value = text.trim_end().parse().ok();
        }
        line.clear();
        client.0.read_line(&mut line).unwrap();
    }
    value.unwrap()
}

/// Waits until any connection uploads a value, or until none does.
fn wait_until_uploading(client: &mut Client, must_upload: bool) {
    loop {
        let mut is_uploading = false;
        let mut line = client.request(b"stats conns\r\n");
        while line != "END\r\n" {
            is_uploading |= line.ends_with("state conn_nread\r\n");
            line.clear();
            client.0.read_line(&mut line).unwrap();
        }
        if is_uploading == must_upload {
            return;
        }
    }
}

#[test]
fn a_successor_that_ends_after_any_step_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let server = start(config(&memory_file, 8 << 20)).unwrap();
    let mut client = Client::connect(address(&server));
    let mut uploading_client = Client::connect(address(&server));
    uploading_client.0.get_mut().write_all(b"set half 0 0 2\r\nx").unwrap();
    assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
    for steps in 0..7 {
        run_successor_for(steps, &memory_file);
        assert_eq!(client.request(b"incr none 1\r\n"), "NOT_FOUND\r\n");
        assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
        let mut other = Client::connect(address(&server));
        assert_eq!(other.request(b"get none\r\n"), "END\r\n");
    }
    assert_eq!(uploading_client.request(b"y\r\n"), "STORED\r\n");
    // The next one takes over.
    let next_server = take_over(config(&memory_file, 8 << 20)).unwrap().start().unwrap();
    assert!(server.join());
    assert_eq!(client.request(b"get half\r\n"), "VALUE half 0 2\r\n");
    drop(next_server);
    assert!(!control_path(&memory_file).exists());
}

#[test]
fn a_connection_whose_socket_a_failed_successor_keeps_is_closed_at_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let server = start(config(&memory_file, 8 << 20)).unwrap();
    let mut client = Client::connect(address(&server));
    assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
    let channel = ControlChannel::connect(&control_path(&memory_file), TIMEOUT).unwrap();
    let mut hello = FieldWriter::default();
    hello.u32(CONTROL_VERSION);
    hello.u64(1000);
    channel.send(FrameKind::Hello, &hello.0, &[]).unwrap();
    assert_eq!(channel.receive().unwrap().kind, FrameKind::Offer);
    channel.send(FrameKind::Ready, &[], &[]).unwrap();
    let kept_frame = channel.receive().unwrap();
    assert_eq!((kept_frame.kind, kept_frame.descriptors.len()), (FrameKind::Connections, 1));
    drop(channel);
    assert_eq!(client.request(b"get none\r\n"), "END\r\n");
    assert_eq!(client.request(b"quit\r\n"), "");
    drop(kept_frame);
}

#[test]
fn a_recount_that_takes_too_long_is_refused_before_the_server_pauses() {
    let many_items = u64::from(u32::MAX) + 5;
    for (item_count, slab_factor, is_possible) in
        [(1000, 1.5, true), (many_items, 1.25, true), (many_items, 1.5, false)]
    {
        let folder = tempfile::tempdir().unwrap();
        let memory_file = folder.path().join("memory");
        let server = start(config(&memory_file, 8 << 20)).unwrap();
        let mut client = Client::connect(address(&server));
        assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
        let relayed = relay(&memory_file, move |kind, body| {
            if kind == FrameKind::Offer {
                // After the version, two sizes and whether a login is required.
                body[25..33].copy_from_slice(&u64::to_le_bytes(item_count));
            }
            assert!(is_possible || kind != FrameKind::Ready, "it pauses");
        });
        let next_config = Config { slab_factor, ..config(&memory_file, 8 << 20) };
        let replacement = prepare_replacement(next_config).unwrap();
        match replacement.connect() {
            Ok(connected) => {
                assert!(is_possible);
                let next_server = connected.take_over().unwrap().start().unwrap();
                assert!(server.join());
                relayed.join().unwrap();
                assert_eq!(client.request(b"touch key 0\r\n"), "TOUCHED\r\n");
                drop(next_server);
            }
            Err(error) => {
                assert!(!is_possible, "{error}");
                assert!(error.to_string().contains("keep -f, -n and -I"), "{error}");
                assert_eq!(relayed.join().unwrap(), None);
                assert_eq!(client.request(b"touch key 0\r\n"), "TOUCHED\r\n");
            }
        }
    }
}

#[test]
fn a_successor_reads_the_offer_of_an_earlier_version() {
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let server = start(config(&memory_file, 8 << 20)).unwrap();
    let relayed = relay(&memory_file, move |kind, body| {
        if kind == FrameKind::Offer {
            body.truncate(25);
        }
    });
    let next_config = Config { slab_factor: 1.5, ..config(&memory_file, 8 << 20) };
    let next_server = take_over(next_config).unwrap().start().unwrap();
    assert!(server.join());
    assert_eq!(relayed.join().unwrap(), Some(FrameKind::Committed));
    drop(next_server);
}

#[test]
fn a_server_that_was_replaced_saves_nothing_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let server = start(config(&memory_file, 8 << 20)).unwrap();
    let mut client = Client::connect(address(&server));
    assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
    let next_server = take_over(config(&memory_file, 8 << 20)).unwrap().start().unwrap();
    server.stop_and_save();
    assert!(server.join());
    assert!(!folder.path().join("memory.meta").exists());
    assert_eq!(client.request(b"touch key 0\r\n"), "TOUCHED\r\n");
    next_server.stop_and_save();
    assert!(!next_server.join());
    assert!(folder.path().join("memory.meta").exists());
}

#[test]
fn connections_of_a_listener_that_the_successor_lacks_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let mut two_listeners = config(&memory_file, 8 << 20);
    let other_listener = Listen::Tcp(([127, 0, 0, 2], 0).into());
    two_listeners.listeners.push(other_listener);
    let server = start(two_listeners).unwrap();
    let addresses = server.addresses();
    let [Address::Tcp(kept_address), Address::Tcp(removed_address)] = addresses[..] else {
        panic!("{addresses:?}");
    };
    let (mut kept_client, mut removed_client) =
        (Client::connect(kept_address), Client::connect(removed_address));
    for client in [&mut kept_client, &mut removed_client] {
        assert_eq!(client.request(b"get none\r\n"), "END\r\n");
    }
    let next_server = take_over(config(&memory_file, 8 << 20)).unwrap().start().unwrap();
    assert!(server.join());
    assert_eq!(kept_client.request(b"get none\r\n"), "END\r\n");
    let mut line = String::new();
    match removed_client.0.read_line(&mut line) {
        Ok(line_bytes) => assert_eq!(line_bytes, 0, "{line}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    drop(next_server);
}

#[test]
fn a_server_that_is_stopped_does_not_wait_for_a_successor_that_prepares_itself() {
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let server = start(config(&memory_file, 8 << 20)).unwrap();
    let channel = ControlChannel::connect(&control_path(&memory_file), TIMEOUT).unwrap();
    let mut hello = FieldWriter::default();
    hello.u32(CONTROL_VERSION);
    hello.u64(1000);
    channel.send(FrameKind::Hello, &hello.0, &[]).unwrap();
    assert_eq!(channel.receive().unwrap().kind, FrameKind::Offer);
    server.stop();
    let stopped_at = Instant::now();
    assert!(!server.join());
    assert!(stopped_at.elapsed() < PREPARATION_TIME_MAX / 2);
}

#[test]
fn a_successor_of_another_version_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let _server = start(config(&memory_file, 8 << 20)).unwrap();
    let channel = ControlChannel::connect(&control_path(&memory_file), TIMEOUT).unwrap();
    let mut hello = FieldWriter::default();
    hello.u32(CONTROL_VERSION + 1);
    hello.u64(1000);
    channel.send(FrameKind::Hello, &hello.0, &[]).unwrap();
    let frame = channel.receive().unwrap();
    assert_eq!(frame.kind, FrameKind::Refused);
    assert!(String::from_utf8(frame.body).unwrap().contains("version"));
}

#[test]
fn an_upload_is_closed_by_the_handover_and_continues_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let server = start(config(&memory_file, 32 << 20)).unwrap();
    let mut client = Client::connect(address(&server));
    let begin_upload = |name: &str| {
        let mut upload = Client::connect(address(&server));
        let head = format!("set {name} 0 0 500000\r\n");
        upload.0.get_mut().write_all(head.as_bytes()).unwrap();
        upload.0.get_mut().write_all(&vec![b'x'; 200_000]).unwrap();
        upload
    };
    let mut resumed_upload = begin_upload("first");
    wait_until_uploading(&mut client, true);
    run_successor_for(7, &memory_file);
    resumed_upload.0.get_mut().write_all(&vec![b'x'; 300_000]).unwrap();
    assert_eq!(resumed_upload.request(b"\r\n"), "STORED\r\n");
    wait_until_uploading(&mut client, false);
    let mut closed_upload = begin_upload("second");
    wait_until_uploading(&mut client, true);
    let next_server = take_over(config(&memory_file, 32 << 20)).unwrap().start().unwrap();
    let mut line = String::new();
    let read_result = closed_upload.0.read_line(&mut line);
    assert!(read_result.is_err() || line.is_empty(), "{line}");
    assert!(server.join());
    assert_eq!(client.request(b"get second\r\n"), "END\r\n");
    assert_eq!(client.request(b"touch first 0\r\n"), "TOUCHED\r\n");
    drop(next_server);
}

#[test]
fn a_server_with_another_layout_passes_its_connections_and_an_empty_cache() {
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let server = start(config(&memory_file, 8 << 20)).unwrap();
    let mut client = Client::connect(address(&server));
    let store_and_read_unique = |client: &mut Client| {
        assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
        let line = client.request(b"mg key c\r\n");
        let number = line.trim_end().strip_prefix("HD c").unwrap();
        number.parse::<u64>().unwrap()
    };
    let unique_before = store_and_read_unique(&mut client);
    let relayed = relay(&memory_file, |kind, body| {
        if kind == FrameKind::Offer {
            let version = glasscache_store::MemoryHandover::VERSION + (1 << 32);
            body[..8].copy_from_slice(&version.to_le_bytes());
        }
    });
    let next_server = take_over(config(&memory_file, 8 << 20)).unwrap();
    let recovery_message = next_server.prepared_store.recovery_message.clone();
    assert!(recovery_message.contains("starts empty: the running server has another layout"));
    let next_server = next_server.start().unwrap();
    assert_eq!(relayed.join().unwrap(), Some(FrameKind::Committed));
    assert!(server.join());
    assert_eq!(client.request(b"get key\r\n"), "END\r\n");
    assert!(store_and_read_unique(&mut client) > unique_before);
    assert!(!folder.path().join("memory.new").exists());
    // The next one continues with what is stored now.
    let last_server = take_over(config(&memory_file, 8 << 20)).unwrap().start().unwrap();
    assert!(next_server.join());
    assert_eq!(client.request(b"touch key 0\r\n"), "TOUCHED\r\n");
    drop(last_server);
}

/// Connects clients that send `request` and read nothing.
fn connect_clients_that_do_not_read(
    server: &RunningServer,
    count: usize,
    request: &[u8],
) -> Vec<Client> {
    let connect = |_| {
        let mut client = Client::connect(address(server));
        client.0.get_mut().write_all(request).unwrap();
        client
    };
    (0..count).map(connect).collect()
}

#[test]
fn pending_output_is_copied_for_a_handover_within_the_memory_for_peers() {
    const VALUE_BYTES: usize = 1_000_000;
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let server = start(config(&memory_file, 64 << 20)).unwrap();
    let mut client = Client::connect(address(&server));
    let set_request = [
        format!("set key 0 0 {VALUE_BYTES}\r\n").into_bytes(),
        vec![b'x'; VALUE_BYTES],
        b"\r\n".to_vec(),
    ];
    assert_eq!(client.request(&set_request.concat()), "STORED\r\n");
    let request = format!("get{}\r\n", " key".repeat(12));
    let mut slow_clients = connect_clients_that_do_not_read(&server, 60, request.as_bytes());
    // Each is served until its socket is full; the request for this number sends too.
    let mut previous_send_calls = 0;
    while read_counter(&mut client, "send_calls") > previous_send_calls + 2 {
        previous_send_calls = read_counter(&mut client, "send_calls");
        std::thread::sleep(Duration::from_millis(200));
    }
    run_successor_for(7, &memory_file);
    let limit_bytes = read_counter(&mut client, "peer_bytes_limit");
    let held_bytes = read_counter(&mut client, "peer_bytes");
    eprintln!("{held_bytes} bytes of {limit_bytes}");
    // Each worker may see the same free memory once.
    assert!(held_bytes <= limit_bytes + 2 * VALUE_BYTES as u64, "{held_bytes} of {limit_bytes}");
    // Nothing was lost: the server continues.
    let reply = [
        format!("VALUE key 0 {VALUE_BYTES}\r\n").into_bytes(),
        vec![b'x'; VALUE_BYTES],
        b"\r\n".to_vec(),
    ];
    let mut expected = reply.concat().repeat(12);
    expected.extend_from_slice(b"END\r\n");
    let mut received = vec![0; expected.len()];
    slow_clients[0].0.read_exact(&mut received).unwrap();
    assert!(received == expected);
    let next_server = take_over(config(&memory_file, 64 << 20)).unwrap().start().unwrap();
    // Those that cannot pass are closed, and what they receive until then is right.
    let readers = slow_clients.drain(1..).map(|mut client| {
        let expected = expected.clone();
        std::thread::spawn(move || {
            let mut received = Vec::new();
            let mut buffer = vec![0; 1 << 20];
            while received.len() < expected.len() {
                match client.0.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(length) => received.extend_from_slice(&buffer[..length]),
                }
            }
            assert!(expected.starts_with(&received));
            received.len() == expected.len()
        })
    });
    let readers: Vec<_> = readers.collect();
    let are_complete = readers.into_iter().map(|reader| reader.join().unwrap());
    let complete_count = are_complete.filter(|is_complete| *is_complete).count();
    eprintln!("{complete_count} of 59 received everything");
    assert!(server.join());
    drop(next_server);
}

#[test]
fn a_connection_that_stays_behind_is_closed_without_a_reset_although_its_client_still_sent() {
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let server = start(config(&memory_file, 32 << 20)).unwrap();
    let mut upload = Client::connect(address(&server));
    let head = b"set key 0 0 500000\r\n";
    upload.0.get_mut().write_all(head).unwrap();
    upload.0.get_mut().write_all(&vec![b'x'; 100_000]).unwrap();
    let mut client = Client::connect(address(&server));
    wait_until_uploading(&mut client, true);
    let mut sender = upload.0.get_ref().try_clone().unwrap();
    let relayed = relay(&memory_file, move |kind, _| {
        if kind == FrameKind::Memory {
            // The server pauses: it reads this only to discard it.
            sender.write_all(&vec![b'x'; 50_000]).unwrap();
        }
    });
    let next_server = take_over(config(&memory_file, 32 << 20)).unwrap().start().unwrap();
    assert_eq!(relayed.join().unwrap(), Some(FrameKind::Committed));
    let mut line = String::new();
    assert_eq!(upload.0.read_line(&mut line).unwrap(), 0, "{line}");
    assert!(server.join());
    drop(next_server);
}

#[test]
fn a_unix_socket_gets_the_mode_that_its_next_server_wants() {
    let folder = tempfile::tempdir().unwrap();
    let memory_file = folder.path().join("memory");
    let path = folder.path().join("socket");
    let config_with_mode = |mode| {
        let path = path.clone();
        Config {
            listeners: vec![Listen::Unix { path, mode, group: None }],
            ..config(&memory_file, 8 << 20)
        }
    };
    let read_mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let server = start(config_with_mode(0o700)).unwrap();
    let given_up = take_over(config_with_mode(0o770)).unwrap();
    drop(given_up);
    assert_eq!(read_mode(), 0o700);
    let next_server = take_over(config_with_mode(0o770)).unwrap().start().unwrap();
    assert!(server.join());
    let wait_began_at = Instant::now();
    while read_mode() != 0o770 {
        assert!(wait_began_at.elapsed() < TIMEOUT, "its mode is {:o}", read_mode());
    }
    drop(next_server);
}

#[test]
fn lines_that_are_pending_when_a_server_is_replaced_are_sent_to_its_watchers() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let memory_file = folder.path().join("memory");
        let server = start(config(&memory_file, 8 << 20)).unwrap();
        let mut watcher = Client::connect(address(&server));
        assert_eq!(watcher.request(b"watch mutations\r\n"), "OK\r\n");
        let mut client = Client::connect(address(&server));
        // Stored just before the server pauses: its lines wait for the next time at which watchers are served.
        let relayed = relay(&memory_file, move |kind, _| {
            if kind == FrameKind::Ready {
                assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
            }
        });
        let next_server = take_over(config(&memory_file, 8 << 20)).unwrap().start().unwrap();
        relayed.join().unwrap();
        assert!(server.join());
        let mut line = String::new();
        watcher.0.read_line(&mut line).unwrap();
        assert!(line.contains("type=item_store key=key "), "{line:?}");
        drop(next_server);
    }
}

#[test]
fn a_replacement_can_be_cancelled_until_it_accepts() {
    for (cancelled_at, is_possible) in [
        (FrameKind::Hello, true),
        (FrameKind::Offer, true),
        (FrameKind::Ready, true),
        (FrameKind::Memory, true),
        (FrameKind::Commit, false),
        (FrameKind::Committed, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let memory_file = folder.path().join("memory");
        let server = start(config(&memory_file, 8 << 20)).unwrap();
        let mut client = Client::connect(address(&server));
        assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
        let replacement = prepare_replacement(config(&memory_file, 8 << 20)).unwrap();
        let cancellation = replacement.cancellation();
        let relayed = relay(&memory_file, move |kind, _| {
            if kind == cancelled_at {
                assert_eq!(cancellation.cancel(), is_possible);
            }
        });
        let kept_cancellation = replacement.cancellation();
        let connected = replacement.connect();
        let taken_over = connected.and_then(crate::ConnectedReplacement::take_over);
        let channel = taken_over.as_ref().ok().and_then(|prepared| {
            let inheritance = prepared.inheritance.as_ref()?;
            Some(Arc::downgrade(&inheritance.channel))
        });
        let start_result = taken_over.and_then(PreparedServer::start);
        // One that may cancel lives as long as the process.
        let is_channel_open = channel.is_some_and(|channel| channel.strong_count() > 0);
        assert!(!is_channel_open || start_result.is_err(), "{cancelled_at:?}");
        relayed.join().unwrap();
        if let Err(error) = &start_result {
            assert!(is_possible, "{error}");
            assert!(error.to_string().contains("cancelled"), "{error}");
        } else {
            assert!(!is_possible, "{cancelled_at:?}");
            assert!(server.join());
        }
        drop(kept_cancellation);
        assert_eq!(client.request(b"touch key 0\r\n"), "TOUCHED\r\n");
    }
}
