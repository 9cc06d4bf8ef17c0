//! Recognising the process that something was made in, so that no child uses its parent's sockets.
//!
//! A [`Process`] is compared with a counter that a `pthread_atfork` handler raises in each child. Every `fork` of
//! the C library runs that handler, whichever language calls it, so forks need no announcement, and the
//! comparison is one relaxed load (docs/decisions/client.md, 0057).

use forkguard::atfork::Guard;

/// The process in which this value was made.
#[derive(Debug, Clone)]
pub struct Process(ProcessIdentity);

#[derive(Debug, Clone)]
enum ProcessIdentity {
    /// Forks counted so far.
    ForkGuard(Guard),
    /// Its process id, where no handler could be registered: a system call for each comparison.
    Id(u32),
}

impl Process {
    /// The running process.
    pub fn current() -> Self {
        Self(
            Guard::try_new().map_or_else(
                |_| ProcessIdentity::Id(std::process::id()),
                ProcessIdentity::ForkGuard,
            ),
        )
    }

    /// Whether this still is the process in which the value was made, and not a child of it.
    #[inline]
    pub fn is_current(&self) -> bool {
        match &self.0 {
            ProcessIdentity::ForkGuard(guard) => !guard.clone().detected_fork(),
            ProcessIdentity::Id(id) => *id == std::process::id(),
        }
    }
}

/// A number to begin a connection's opaques with: random, so that the requests of two processes, or of two
/// connections, do not carry the same opaques.
pub fn random_opaque() -> u32 {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut bytes = [0; 4];
    if getrandom(&mut bytes, GetRandomFlags::NONBLOCK) == Ok(4) {
        return u32::from_ne_bytes(bytes);
    }
    // Early after boot the kernel has no randomness yet: process and time differ as well.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.unwrap_or_default().subsec_nanos();
    (nanos ^ std::process::id().rotate_left(16)).wrapping_mul(0x9e37_79b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_made_a_value_is_current() {
        let process = Process::current();
        assert!(process.is_current() && process.clone().is_current());
    }

    #[test]
    fn a_process_known_by_its_id_is_current_only_under_that_id() {
        assert!(Process(ProcessIdentity::Id(std::process::id())).is_current());
        assert!(!Process(ProcessIdentity::Id(std::process::id() + 1)).is_current());
    }

    #[test]
    fn connections_do_not_begin_with_the_same_opaque() {
        let opaques: std::collections::HashSet<u32> = (0..100).map(|_| random_opaque()).collect();
        assert!(opaques.len() > 95);
    }
}
