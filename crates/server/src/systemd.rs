//! The word to systemd that a service started with `Type=notify` waits for.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells systemd `READY=1` or `STOPPING=1`, when it started this process and asked to be told.
/// When it cannot be told, the server serves all the same.
pub fn notify(word: &str) {
    // LOSSY: whoever asked is gone, and there is nobody else to tell.
    drop(tell(word));
}

fn tell(word: &str) -> std::io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let socket = UnixDatagram::unbound()?;
    match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => {
            let address = SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(word.as_bytes(), &address)?;
        }
        None => {
            socket.send_to(word.as_bytes(), path)?;
        }
    }
    Ok(())
}
