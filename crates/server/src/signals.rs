//! Signals, and the word to systemd: what a server does when it is a process of its own.

use std::os::unix::net::UnixDatagram;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::low_level::pipe;

use crate::Error;
use crate::running::Running;

/// Says that the server is ready and waits until it ends: by SIGTERM, SIGINT or SIGUSR1, or by the
/// `shutdown` command. Begun requests are answered; within a second all is over.
///
/// # Errors
/// When the signals cannot be watched for.
pub fn run_until_signal(running: Running) -> Result<(), Error> {
    let (read, write) = UnixStream::pair().map_err(Error::System)?;
    for signal in [SIGTERM, SIGINT, SIGUSR1] {
        let write = write.try_clone().map_err(Error::System)?;
        pipe::register(signal, write).map_err(Error::System)?;
    }
    notify("READY=1");
    let mut told = [PollFd::new(&read, PollFlags::IN)];
    // The tick notices the end by `shutdown`, which rings no bell here.
    let tick = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    while !running.is_stopping() {
        match poll(&mut told, Some(&tick)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            _ => running.stop(),
        }
    }
    notify("STOPPING=1");
    running.join();
    Ok(())
}

/// Tells systemd, when it started us and asked to be told.
fn notify(word: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let Ok(socket) = UnixDatagram::unbound() else {
        return;
    };
    let sent = match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            std::os::unix::net::SocketAddr::from_abstract_name(name)
                .and_then(|address| socket.send_to_addr(word.as_bytes(), &address))
        }
        None => socket.send_to(word.as_bytes(), path),
    };
    // Whoever asked is gone: nobody to tell, and the server serves all the same.
    drop(sent);
}
