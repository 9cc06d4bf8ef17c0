//! The thread that waits for a successor and hands over to it: `serve --replace` of the next process.
//!
//! It listens on a unix socket beside the memory file. A successor that is prepared makes this server pause; then it
//! gets the connections and what belongs to the memory, and once it can serve, everything. If it fails before that, at
//! any point, this server goes on (docs/decisions/0104).

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::shared::Shared;
use crate::shared::control_channel::{CONTROL_VERSION, ControlChannel, FrameKind};
use crate::shared::fields::{FieldReader, FieldWriter};
use crate::shared::handover::Handover;
use crate::shared::lock::lock;

/// How long a successor may take to prepare itself: it maps the memory page by page.
const PREPARATION_MAX: Duration = Duration::from_mins(2);
/// How long one step of a handover may take while no request is served.
pub(crate) const PAUSE_STEP_MAX: Duration = Duration::from_secs(5);
/// Only the user of the server may connect.
const MODE: u32 = 0o600;

/// The socket on which a server waits for its successor.
pub(crate) struct ControlSocket {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of its file.
    file: Option<(u64, u64)>,
}

impl ControlSocket {
    /// Binds it, replacing one that another server left: the memory file is locked, so none is running.
    ///
    /// # Errors
    /// The path is too long, or the folder does not allow it.
    pub(crate) fn bind(path: PathBuf) -> io::Result<ControlSocket> {
        match fs::symlink_metadata(&path) {
            Ok(file) if file.file_type().is_socket() => fs::remove_file(&path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            // Binding fails: another file is in the way.
            Ok(_) => {}
        }
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
        // Nobody can connect before it listens.
        fs::set_permissions(&path, Permissions::from_mode(MODE))?;
        rustix::net::listen(&socket, 1)?;
        Ok(ControlSocket::inherited(socket, path))
    }

    /// That of a predecessor.
    pub(crate) fn inherited(socket: OwnedFd, path: PathBuf) -> ControlSocket {
        let file = fs::symlink_metadata(&path).ok();
        ControlSocket {
            socket,
            path,
            file: file.map(|file| (file.dev(), file.ino())),
        }
    }

    fn remove_file(&self) {
        let file = fs::symlink_metadata(&self.path).ok();
        if self.file.is_some() && self.file == file.map(|file| (file.dev(), file.ino())) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The state of the thread.
pub(crate) struct SuccessorThread {
    pub(crate) shared: Arc<Shared>,
    pub(crate) control: ControlSocket,
    pub(crate) memory_file: OwnedFd,
    /// In the order of the server's addresses.
    pub(crate) listening_sockets: Vec<OwnedFd>,
}

impl SuccessorThread {
    /// Waits until the server ends.
    pub(crate) fn run(self) {
        while !self.shared.phases.is_ending() {
            let waker = &self.shared.control_waker;
            let mut ready = [
                PollFd::new(&self.control.socket, PollFlags::IN),
                PollFd::new(waker, PollFlags::IN),
            ];
            let _ = poll(&mut ready, None);
            let [connected, woken] = ready.map(|ready| !ready.revents().is_empty());
            if woken {
                waker.clear();
            }
            if connected {
                self.serve_successor();
            }
        }
        if !self.shared.phases.is_replaced() {
            self.control.remove_file();
        }
    }

    fn serve_successor(&self) {
        let accepted = rustix::net::accept_with(&self.control.socket, SocketFlags::CLOEXEC);
        let channel = accepted
            .map_err(io::Error::from)
            .and_then(|socket| ControlChannel::new(socket, PAUSE_STEP_MAX));
        let outcome = match channel {
            Ok(channel) => self.hand_over_on(channel),
            Err(error) => Err(error.to_string()),
        };
        let log = &self.shared.log;
        log.line(match outcome {
            Ok(pause) => format!(
                "glasscache: a new process has taken over, after a pause of {:.1} ms",
                pause.as_secs_f64() * 1000.0
            ),
            Err(reason) => {
                format!("glasscache: a new process has not taken over: {reason}; this one goes on")
            }
        });
    }

    /// A whole conversation; returns how long no request was served.
    fn hand_over_on(&self, channel: ControlChannel) -> Result<Duration, String> {
        self.wait_for_message(&channel, PAUSE_STEP_MAX)?;
        let hello = receive(&channel, FrameKind::Hello)?;
        let mut hello = FieldReader(&hello);
        let (Some(version), Some(drain_ms)) = (hello.u32(), hello.u64()) else {
            return Err("its greeting is malformed".to_owned());
        };
        if version != CONTROL_VERSION {
            let reason =
                format!("it hands over in version {version}, this one in {CONTROL_VERSION}");
            let _ = channel.send(FrameKind::Refused, reason.as_bytes(), &[]);
            return Err(reason);
        }
        let (offer, descriptors) = self.offer();
        send(&channel, FrameKind::Offer, &offer, &descriptors)?;
        self.wait_for_message(&channel, PREPARATION_MAX)?;
        receive(&channel, FrameKind::Ready)?;
        let pause_start = Instant::now();
        let handover = Arc::new(Handover {
            channel,
            sender: Mutex::default(),
            uncommitted: Mutex::default(),
            drain: Duration::from_millis(drain_ms),
        });
        let outcome = self.pause_and_commit(&handover);
        if let Err(reason) = &outcome {
            self.shared.phases.resume();
            handover.refuse(reason);
        }
        self.shared.wake_all();
        outcome.map(|()| pause_start.elapsed())
    }

    /// Waits until the successor sends something, or this server is stopped, which must not wait for a successor.
    fn wait_for_message(&self, channel: &ControlChannel, longest: Duration) -> Result<(), String> {
        let waker = &self.shared.control_waker;
        let end = Instant::now() + longest;
        loop {
            if self.shared.phases.is_ending() {
                return Err("the server is stopping".to_owned());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("it did not respond in time".to_owned());
            }
            let timeout = Timespec::try_from(left).ok();
            let mut ready = [
                PollFd::new(channel, PollFlags::IN),
                PollFd::new(waker, PollFlags::IN),
            ];
            let _ = poll(&mut ready, timeout.as_ref());
            let [has_message, woken] = ready.map(|ready| !ready.revents().is_empty());
            if has_message {
                return Ok(());
            }
            if woken {
                waker.clear();
            }
        }
    }

    /// What a successor needs to prepare itself.
    fn offer(&self) -> (Vec<u8>, Vec<BorrowedFd<'_>>) {
        let size = self.shared.store.memory_size();
        let mut offer = FieldWriter::default();
        offer.u64(glasscache_store::Handover::VERSION);
        offer.u64(size.memory_bytes);
        offer.u64(size.segments);
        offer.bool(self.shared.logins.are_required());
        let files = [self.memory_file.as_fd(), self.control.socket.as_fd()];
        let listening = self.listening_sockets.iter().map(AsFd::as_fd);
        (offer.0, files.into_iter().chain(listening).collect())
    }

    /// From the pause to the moment when the successor owns everything.
    fn pause_and_commit(&self, handover: &Arc<Handover>) -> Result<(), String> {
        let phases = &self.shared.phases;
        if !phases.begin_pause(Arc::clone(handover)) {
            return Err("the server is stopping".to_owned());
        }
        self.shared.wake_all();
        phases.wait_for_workers(self.shared.workers.len(), PAUSE_STEP_MAX)?;
        let stop = self.shared.clock.stop_time();
        let uncommitted = lock(&handover.uncommitted);
        let memory = self.shared.store.hand_over(stop, &uncommitted);
        let memory = memory.ok_or("a worker has not ended its work")?;
        let mut fields = FieldWriter::default();
        let clock = self.shared.clock.handed_over();
        for number in clock {
            fields.i64(number);
        }
        fields.u64(self.shared.store.uniques_end());
        fields.bytes(&memory);
        let channel = &handover.channel;
        send(channel, FrameKind::Memory, &fields.0, &[])?;
        receive(channel, FrameKind::Accept)?;
        let commit = || channel.send(FrameKind::Committed, &[], &[]).is_ok();
        if phases.commit(commit) {
            Ok(())
        } else {
            Err("it ended, or this server was stopped, in the last moment".to_owned())
        }
    }
}

fn send(
    channel: &ControlChannel,
    kind: FrameKind,
    body: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), String> {
    let sent = channel.send(kind, body, descriptors);
    sent.map_err(|error| error.to_string())
}

/// The body of the next frame, which must be of this kind.
fn receive(channel: &ControlChannel, kind: FrameKind) -> Result<Vec<u8>, String> {
    let frame = channel.receive().map_err(|error| error.to_string())?;
    if frame.kind == kind {
        Ok(frame.body)
    } else {
        Err(format!("{:?} came instead of {kind:?}", frame.kind))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::path::Path;

    use super::*;
    use crate::shared::address::Address;
    use crate::shared::config::{Config, Listen};
    use crate::shared::control_channel::control_path;
    use crate::{RunningServer, prepare_replacement, start};

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

    /// A successor that does `steps` steps of the handover and then ends.
    fn end_after(steps: usize, memory_file: &Path) {
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

    #[test]
    fn a_successor_that_ends_after_any_step_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory");
        let server = start(config(&file, 8 << 20)).unwrap();
        let mut client = Client::connect(address(&server));
        let mut half = Client::connect(address(&server));
        half.0.get_mut().write_all(b"set half 0 0 2\r\nx").unwrap();
        assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
        for steps in 0..7 {
            end_after(steps, &file);
            assert_eq!(client.request(b"incr none 1\r\n"), "NOT_FOUND\r\n");
            assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
            let mut other = Client::connect(address(&server));
            assert_eq!(other.request(b"get none\r\n"), "END\r\n");
        }
        assert_eq!(half.request(b"y\r\n"), "STORED\r\n");
        // The next one takes over.
        let next = prepare_replacement(config(&file, 8 << 20)).unwrap();
        let next = next.take_over().unwrap().start().unwrap();
        assert!(server.join());
        assert_eq!(client.request(b"get half\r\n"), "VALUE half 0 2\r\n");
        drop(next);
        assert!(!control_path(&file).exists());
    }

    #[test]
    fn a_connection_whose_socket_a_failed_successor_keeps_is_closed_at_the_client() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory");
        let server = start(config(&file, 8 << 20)).unwrap();
        let mut client = Client::connect(address(&server));
        assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
        let channel = ControlChannel::connect(&control_path(&file), TIMEOUT).unwrap();
        let mut hello = FieldWriter::default();
        hello.u32(CONTROL_VERSION);
        hello.u64(1000);
        channel.send(FrameKind::Hello, &hello.0, &[]).unwrap();
        assert_eq!(channel.receive().unwrap().kind, FrameKind::Offer);
        channel.send(FrameKind::Ready, &[], &[]).unwrap();
        let kept = channel.receive().unwrap();
        assert_eq!(
            (kept.kind, kept.descriptors.len()),
            (FrameKind::Connections, 1)
        );
        drop(channel);
        assert_eq!(client.request(b"get none\r\n"), "END\r\n");
        assert_eq!(client.request(b"quit\r\n"), "");
        drop(kept);
    }

    #[test]
    fn a_server_that_was_replaced_saves_nothing_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory");
        let server = start(config(&file, 8 << 20)).unwrap();
        let mut client = Client::connect(address(&server));
        assert_eq!(client.request(b"set key 0 0 1\r\nx\r\n"), "STORED\r\n");
        let next = prepare_replacement(config(&file, 8 << 20)).unwrap();
        let next = next.take_over().unwrap().start().unwrap();
        server.stop_and_save();
        assert!(server.join());
        assert!(!folder.path().join("memory.meta").exists());
        assert_eq!(client.request(b"touch key 0\r\n"), "TOUCHED\r\n");
        next.stop_and_save();
        assert!(!next.join());
        assert!(folder.path().join("memory.meta").exists());
    }

    #[test]
    fn connections_of_a_listener_that_the_successor_lacks_are_closed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory");
        let mut two_listeners = config(&file, 8 << 20);
        let other_listener = Listen::Tcp(([127, 0, 0, 2], 0).into());
        two_listeners.listeners.push(other_listener);
        let server = start(two_listeners).unwrap();
        let addresses = server.addresses();
        let [Address::Tcp(kept), Address::Tcp(removed)] = addresses[..] else {
            panic!("{addresses:?}");
        };
        let (mut kept, mut removed) = (Client::connect(kept), Client::connect(removed));
        for client in [&mut kept, &mut removed] {
            assert_eq!(client.request(b"get none\r\n"), "END\r\n");
        }
        let next = prepare_replacement(config(&file, 8 << 20)).unwrap();
        let next = next.take_over().unwrap().start().unwrap();
        assert!(server.join());
        assert_eq!(kept.request(b"get none\r\n"), "END\r\n");
        let mut line = String::new();
        match removed.0.read_line(&mut line) {
            Ok(bytes) => assert_eq!(bytes, 0, "{line}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        drop(next);
    }

    #[test]
    fn a_server_that_is_stopped_does_not_wait_for_a_successor_that_prepares_itself() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory");
        let server = start(config(&file, 8 << 20)).unwrap();
        let channel = ControlChannel::connect(&control_path(&file), TIMEOUT).unwrap();
        let mut hello = FieldWriter::default();
        hello.u32(CONTROL_VERSION);
        hello.u64(1000);
        channel.send(FrameKind::Hello, &hello.0, &[]).unwrap();
        assert_eq!(channel.receive().unwrap().kind, FrameKind::Offer);
        server.stop();
        let stopped_at = Instant::now();
        assert!(!server.join());
        assert!(stopped_at.elapsed() < PREPARATION_MAX / 2);
    }

    #[test]
    fn another_file_at_the_path_of_the_control_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.control");
        fs::write(&path, "a user's").unwrap();
        assert!(ControlSocket::bind(path.clone()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a user's");
    }

    #[test]
    fn a_successor_of_another_version_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory");
        let _server = start(config(&file, 8 << 20)).unwrap();
        let channel = ControlChannel::connect(&control_path(&file), TIMEOUT).unwrap();
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
        let file = folder.path().join("memory");
        let server = start(config(&file, 32 << 20)).unwrap();
        let mut client = Client::connect(address(&server));
        let begin = |name: &str| {
            let mut upload = Client::connect(address(&server));
            let head = format!("set {name} 0 0 500000\r\n");
            upload.0.get_mut().write_all(head.as_bytes()).unwrap();
            upload.0.get_mut().write_all(&vec![b'x'; 200_000]).unwrap();
            upload
        };
        let mut resumed_upload = begin("first");
        let wait_for_upload = |client: &mut Client, is_expected: bool| {
            loop {
                let mut is_uploading = false;
                let mut line = client.request(b"stats conns\r\n");
                while line != "END\r\n" {
                    is_uploading |= line.ends_with("state conn_nread\r\n");
                    line.clear();
                    client.0.read_line(&mut line).unwrap();
                }
                if is_uploading == is_expected {
                    return;
                }
            }
        };
        wait_for_upload(&mut client, true);
        end_after(7, &file);
        resumed_upload
            .0
            .get_mut()
            .write_all(&vec![b'x'; 300_000])
            .unwrap();
        assert_eq!(resumed_upload.request(b"\r\n"), "STORED\r\n");
        wait_for_upload(&mut client, false);
        let mut closed_upload = begin("second");
        wait_for_upload(&mut client, true);
        let next = prepare_replacement(config(&file, 32 << 20)).unwrap();
        let next = next.take_over().unwrap().start().unwrap();
        let mut line = String::new();
        let end = closed_upload.0.read_line(&mut line);
        assert!(end.is_err() || line.is_empty(), "{line}");
        assert!(server.join());
        assert_eq!(client.request(b"get second\r\n"), "END\r\n");
        assert_eq!(client.request(b"touch first 0\r\n"), "TOUCHED\r\n");
        drop(next);
    }
}
