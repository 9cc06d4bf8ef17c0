//! Servers to measure: child processes on free loopback ports, pinned to CPUs, and stopped when dropped.
//!
//! memcached and glasscache are started with the same flags; only the program differs.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process};

use crate::load::pin;
use crate::proc::{Meter, list_threads, read_resident_bytes, read_thread_name};

/// How long a server may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a server may take to exit before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Which server to start, and how.
#[derive(Debug, Clone)]
pub(crate) struct ServerCommand {
    /// The name in tables.
    pub name: &'static str,
    /// The program.
    pub program: PathBuf,
    /// Arguments before all others: the subcommand, where there is one.
    pub(crate) leading_arguments: Vec<String>,
    /// `-m`, in MiB.
    pub memory_mib: u64,
    /// `-t`.
    pub workers: usize,
    /// Further arguments.
    pub(crate) extra_arguments: Vec<String>,
    /// Environment beyond the inherited one.
    pub environment: Vec<(String, String)>,
    /// CPUs of its workers, round-robin; no pinning if empty.
    pub cpus: Vec<usize>,
}

impl ServerCommand {
    /// memcached from `program`.
    pub(crate) fn memcached(program: &Path, memory_mib: u64, workers: usize) -> Self {
        Self {
            name: "memcached",
            program: program.to_owned(),
            leading_arguments: Vec::new(),
            memory_mib,
            workers,
            extra_arguments: Vec::new(),
            environment: Vec::new(),
            cpus: Vec::new(),
        }
    }

    /// The `glasscache` binary `program`.
    pub(crate) fn glasscache(program: &Path, memory_mib: u64, workers: usize) -> Self {
        let base_command = Self::memcached(program, memory_mib, workers);
        Self { name: "glasscache", leading_arguments: vec!["serve".to_owned()], ..base_command }
    }

    /// The same server with further arguments.
    #[must_use]
    pub(crate) fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.extra_arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// Starts the server and waits until it responds.
    pub(crate) fn start(&self) -> io::Result<ServerProcess> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, find_free_port()?));
        let mut command = Command::new(&self.program);
        command.args(&self.leading_arguments);
        command.args([
            "-l",
            "127.0.0.1",
            "-p",
            &address.port().to_string(),
            "-U",
            "0",
            "-c",
            "4096",
        ]);
        command.args(["-m", &self.memory_mib.to_string(), "-t", &self.workers.to_string()]);
        if getuid().is_root() {
            command.args(["-u", "root"]);
        }
        command
            .args(&self.extra_arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.program.display()))
        })?;
        let mut server = ServerProcess {
            name: self.name,
            address,
            child,
            workers: self.workers,
            version: String::new(),
        };
        server.version = server.wait_until_ready()?;
        server.pin(&self.cpus)?;
        Ok(server)
    }
}

/// A running server; it is stopped when dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    /// The name in tables.
    pub name: &'static str,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its reply to `version`.
    pub version: String,
    child: Child,
    workers: usize,
}

impl ServerProcess {
    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Counts the CPU of all its threads.
    pub(crate) fn meter(&self) -> Meter {
        Meter::Process { pid: self.pid(), workers: self.workers }
    }

    /// `VmRSS` and huge pages, in bytes.
    pub(crate) fn read_resident_bytes(&self) -> u64 {
        read_resident_bytes(self.pid())
    }

    /// False once the process has ended.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn wait_until_ready(&mut self) -> io::Result<String> {
        let started = Instant::now();
        loop {
            match send_line(self.address, "version") {
                Ok(reply) => return Ok(reply.trim_start_matches("VERSION ").to_owned()),
                Err(_) if self.is_running() && started.elapsed() < START_TIMEOUT => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => {
                    let message = format!("{} does not respond: {error}", self.name);
                    return Err(io::Error::new(error.kind(), message));
                }
            }
        }
    }

    /// Gives each worker a CPU and lets all other threads share them.
    fn pin(&self, cpus: &[usize]) -> io::Result<()> {
        if cpus.is_empty() {
            return Ok(());
        }
        let mut next_cpu = cpus.iter().cycle();
        for tid in list_threads(self.pid()) {
            let is_worker = read_thread_name(self.pid(), tid).contains("worker");
            let own_cpu = next_cpu.clone().take(1).copied().collect::<Vec<_>>();
            let thread_id = Pid::from_raw(tid.cast_signed());
            if is_worker {
                next_cpu.next();
            }
            pin(thread_id, if is_worker { &own_cpu } else { cpus })?;
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.pid().cast_signed()) {
            // The server may have exited already.
            let _ = kill_process(pid, Signal::TERM);
        }
        let started = Instant::now();
        while self.is_running() && started.elapsed() < STOP_TIMEOUT {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `program --version` prints; empty if it cannot be run.
pub(crate) fn read_version(program: &Path) -> String {
    Command::new(program)
        .arg("--version")
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

/// Sends one line and returns the first line of the reply.
pub(crate) fn send_line(address: SocketAddr, line: &str) -> io::Result<String> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(START_TIMEOUT))?;
    socket.write_all(format!("{line}\r\n").as_bytes())?;
    let mut reply = String::new();
    BufReader::new(socket).read_line(&mut reply)?;
    if reply.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(reply.trim_end().to_owned())
}

/// A port that was free a moment ago.
fn find_free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The first memcached in `$MEMCACHED` or on the path.
pub fn find_memcached() -> Option<PathBuf> {
    let from_environment =
        std::env::var_os("MEMCACHED").filter(|path| !path.is_empty()).map(PathBuf::from);
    let folders = std::env::var_os("PATH").unwrap_or_default();
    from_environment.or_else(|| {
        std::env::split_paths(&folders)
            .map(|folder| folder.join("memcached"))
            .find(|path| path.is_file())
    })
}
