//! The notification for systemd that a service started with `Type=notify` sends.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How long systemd may be late in reading notifications.
const SEND_TIME_MAX: Duration = Duration::from_secs(1);

/// Sends `READY=1` or `STOPPING=1` to systemd, if it started this process and expects notifications. A failure to
/// send does not stop the server, and a receiver that does not read does not make it wait for long.
pub fn notify(state: &str) {
    // LOSSY: if systemd is gone there is no other receiver.
    drop(send_state(state));
}

fn send_state(state: &str) -> std::io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIME_MAX))?;
    match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => {
            let address = SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(state.as_bytes(), &address)?;
        }
        None => {
            socket.send_to(state.as_bytes(), path)?;
        }
    }
    Ok(())
}
