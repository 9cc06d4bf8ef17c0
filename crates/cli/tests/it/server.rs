//! A server process for a test: ours on a free port, or a real memcached, killed when dropped.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take to listen on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a reply may take on a busy machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The binary under test.
pub(crate) fn glasscache() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_glasscache"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GLASSCACHE_") {
            command.env_remove(name);
        }
    }
    command
        .env_remove("MEMCACHED_DEBUG")
        .env_remove("MEMCACHED_PORT_FILENAME")
        .env_remove("MEMCACHED_SASL_PWDB");
    command
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl Server {
    /// Starts ours with these further flags on a free port.
    pub(crate) fn start(flags: &[&str]) -> Server {
        let mut command = glasscache();
        command.args(["serve", "-p", "-1", "-u", "root"]).args(flags);
        Server::run(command)
    }

    /// Starts a real memcached on a free port.
    pub(crate) fn memcached(path: &OsString) -> Server {
        Server::memcached_with(path, &[])
    }

    /// Starts a real memcached with these further flags on a free port.
    pub(crate) fn memcached_with(path: &OsString, flags: &[&str]) -> Server {
        let mut command = Command::new(path);
        command.args(["-p", "-1", "-U", "0", "-l", "127.0.0.1", "-u", "root"]).args(flags);
        Server::run(command)
    }

    /// Runs a command that writes its port to the file memcached's variable names.
    pub(crate) fn run(command: Command) -> Server {
        Server::run_with_stderr(command, Stdio::null())
    }

    /// As [`Server::run`], with stderr where the test wants it.
    pub(crate) fn run_with_stderr(mut command: Command, stderr: Stdio) -> Server {
        let folder = tempfile::tempdir().unwrap();
        // The server may be another user's.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let port_file = folder.path().join("ports");
        command.env("MEMCACHED_PORT_FILENAME", &port_file).stderr(stderr);
        let mut child = command.spawn().unwrap();
        let port = wait_for_port(&port_file, &mut child);
        Server { child, port, folder }
    }

    /// A process that listens already.
    pub(crate) fn from_child(child: Child, port: u16) -> Server {
        Server { child, port, folder: tempfile::tempdir().unwrap() }
    }

    /// What the process writes on stderr, if the test wanted a pipe there.
    pub(crate) fn take_stderr(&mut self) -> ChildStderr {
        self.child.stderr.take().unwrap()
    }

    /// A server whose log the test reads line by line; it listens.
    pub(crate) fn run_with_log(command: Command) -> (Server, impl FnMut() -> String) {
        let mut server = Server::run_with_stderr(command, Stdio::piped());
        let mut stderr = BufReader::new(server.take_stderr());
        let mut read_line = move || {
            let mut line = String::new();
            stderr.read_line(&mut line).unwrap();
            line
        };
        assert!(read_line().contains("listens on"));
        (server, read_line)
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The TCP port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its address on this machine.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port of its second TCP address.
    pub(crate) fn second_port(&self) -> u16 {
        let text = std::fs::read_to_string(self.folder.path().join("ports")).unwrap();
        let mut ports = text.lines().filter_map(|line| line.strip_prefix("TCP INET: "));
        ports.nth(1).unwrap().parse().unwrap()
    }

    /// Opens a connection.
    pub(crate) fn connect(&self) -> TestConnection {
        connect_to(self.port)
    }

    /// The processor time the process has used, in ticks of the kernel's clock (`proc_pid_stat(5)`, fields 14 and 15).
    pub(crate) fn read_cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        // The second field, the command's name in parentheses, may contain spaces; the third one follows it.
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let ticks = fields.split(' ').skip(11).take(2);
        ticks.map(|field| field.parse::<u64>().unwrap()).sum()
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the process to end by itself and returns its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::yield_now();
        }
        panic!("the server did not end");
    }
}

/// The memory file (`-e`) of one server after the other.
pub(crate) struct Memory {
    pub(crate) folder: TempDir,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("memory")
    }

    /// The command of a server with this file and two workers.
    pub(crate) fn command(&self, flags: &[&str]) -> Command {
        self.command_as("root", flags)
    }

    /// The same for a server that runs as this user.
    pub(crate) fn command_as(&self, user: &str, flags: &[&str]) -> Command {
        let mut command = glasscache();
        command.args(["serve", "-p", "-1", "-u", user, "-t", "2", "-e"]);
        command.arg(self.file()).args(flags);
        command
    }

    pub(crate) fn start(&self) -> Server {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, flags: &[&str]) -> Server {
        let mut command = self.command(&["-m", "8"]);
        command.args(flags);
        Server::run(command)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a connection to a port of this machine.
pub(crate) fn connect_to(port: u16) -> TestConnection {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).unwrap();
    stream.set_nodelay(true).unwrap();
    TestConnection::new(stream)
}

/// The text of a log line without its time and level, which are written if stderr is not a terminal.
pub(crate) fn strip_time_and_level(line: &str) -> &str {
    let parts: Vec<&str> = line.splitn(3, ' ').collect();
    let [time, level, text] = parts[..] else {
        panic!("no time and level: {line}");
    };
    let is_time = time.len() == "2026-01-31T23:59:59.123Z".len() && time.ends_with('Z');
    let is_level = ["error", "warning", "info", "debug"].contains(&level);
    assert!(is_time && is_level, "no time and level: {line}");
    text
}

/// Waits until something is true of a server, and fails the test if it does not become true.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + START_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "the server did not get there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for_port(file: &Path, child: &mut Child) -> u16 {
    let deadline = Instant::now() + START_TIMEOUT;
    while Instant::now() < deadline {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if let Some(port) = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")) {
            return port.trim().parse().unwrap();
        }
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the server ended with {status}");
        }
        std::thread::yield_now();
    }
    panic!("the server does not listen");
}

/// One connection.
pub(crate) struct TestConnection {
    reader: BufReader<TcpStream>,
}

impl TestConnection {
    /// On an open connection.
    pub(crate) fn new(stream: TcpStream) -> TestConnection {
        TestConnection { reader: BufReader::new(stream) }
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    /// Sends a request and returns the first line of the reply, without its end.
    pub(crate) fn request(&mut self, request: &str) -> String {
        self.send(request.as_bytes());
        self.read_line()
    }

    /// The next line, without its end.
    pub(crate) fn read_line(&mut self) -> String {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).unwrap();
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// The next line, without its end; empty if the server has closed, in order or not.
    pub(crate) fn read_line_or_end(&mut self) -> String {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error}"),
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// Reads exactly up to and including `last`.
    pub(crate) fn read_through(&mut self, last: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(last) {
            let mut byte = [0];
            if let Err(error) = self.reader.read_exact(&mut byte) {
                panic!("{error} after {:?}", String::from_utf8_lossy(&bytes));
            }
            bytes.push(byte[0]);
        }
        bytes
    }

    /// Reads this many bytes.
    pub(crate) fn read_exactly(&mut self, byte_count: usize) -> Vec<u8> {
        let mut bytes = vec![0; byte_count];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Whether the server has closed, in order or not, and sent nothing more.
    pub(crate) fn is_closed_or_reset(&mut self) -> bool {
        use ErrorKind::{ConnectionReset, UnexpectedEof};
        let result = self.reader.read_exact(&mut [0]);
        result.is_err_and(|error| matches!(error.kind(), ConnectionReset | UnexpectedEof))
    }

    /// Whether the server has closed and sent nothing more.
    pub(crate) fn is_closed(&mut self) -> bool {
        let result = self.reader.read_exact(&mut [0]);
        result.is_err_and(|error| error.kind() == ErrorKind::UnexpectedEof)
    }
}
