//! Finds the addresses of one server, by one lookup at a time for all its connections.
//!
//! A lookup runs on a thread of its own, so a resolver that hangs costs a call its deadline and no more, and holds one
//! thread a server however many calls wait for it. The address that took a connection last is tried first.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long found addresses are used again, so that a lookup that outlasts its call still serves the next one.
const RESULT_FRESH_MAX: Duration = Duration::from_secs(1);

/// Looks up a host's addresses.
type LookupFn = dyn Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>> + Send + Sync;

/// What a lookup found, or why it failed.
pub(crate) type Resolved = Result<Vec<SocketAddr>, String>;

/// Finds the addresses of one server.
pub(crate) struct Resolver {
    lookup: Arc<LookupFn>,
    shared: Arc<SharedLookups>,
    /// The address that took a connection last.
    last_connected: Mutex<Option<SocketAddr>>,
}

/// What callers and the thread of the lookup share.
#[derive(Default)]
struct SharedLookups {
    lookups: Mutex<Lookups>,
    lookup_ended: Condvar,
    #[cfg(feature = "tokio")]
    lookup_ended_async: tokio::sync::Notify,
}

#[derive(Default)]
struct Lookups {
    is_running: bool,
    /// How many have ended.
    ended_count: u64,
    /// When the last one ended, and what it found.
    last_result: Option<(Instant, Resolved)>,
}

impl Lookups {
    /// What the last lookup found, if it is new enough to be used again. A failure is not.
    fn fresh_result(&self) -> Option<Resolved> {
        let (ended_at, resolved) = self.last_result.as_ref()?;
        (resolved.is_ok() && ended_at.elapsed() < RESULT_FRESH_MAX).then(|| resolved.clone())
    }

    /// The result of a lookup that ended after `ended_count` of them had.
    fn resolved_after(&self, ended_count: u64) -> Option<Resolved> {
        let (_, resolved) =
            self.last_result.as_ref().filter(|_| self.ended_count != ended_count)?;
        Some(resolved.clone())
    }
}

impl SharedLookups {
    fn lookups(&self) -> MutexGuard<'_, Lookups> {
        // Nothing in this file can panic while the lookups are half changed.
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_lookup(&self, resolved: Resolved) {
        let mut lookups = self.lookups();
        lookups.is_running = false;
        lookups.ended_count += 1;
        lookups.last_result = Some((Instant::now(), resolved));
        drop(lookups);
        self.lookup_ended.notify_all();
        #[cfg(feature = "tokio")]
        self.lookup_ended_async.notify_waiters();
    }
}

/// How a caller gets the addresses.
enum LookupState {
    /// They are known, or no lookup can be started.
    Resolved(Resolved),
    /// A lookup is running; this many had ended before it.
    Running(u64),
}

impl Default for Resolver {
    /// Looks names up by the resolver of the system.
    fn default() -> Self {
        Self::new(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }
}

impl Resolver {
    /// Looks names up by `lookup`.
    pub(crate) fn new(
        lookup: impl Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self { lookup: Arc::new(lookup), shared: Arc::default(), last_connected: Mutex::default() }
    }

    /// Finds the addresses of a host, by the lookup that is running or by a new one; `None` if that took until
    /// the deadline.
    pub(crate) fn find(&self, host: &str, port: u16, deadline: Instant) -> Option<Resolved> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Some(Ok(vec![SocketAddr::new(ip, port)]));
        }
        let ended_before = match self.begin_lookup(host, port) {
            LookupState::Resolved(resolved) => return Some(resolved),
            LookupState::Running(ended_before) => ended_before,
        };
        let mut lookups = self.shared.lookups();
        loop {
            if let Some(resolved) = lookups.resolved_after(ended_before) {
                return Some(resolved);
            }
            let time_left = deadline.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                return None;
            }
            let wait_result = self.shared.lookup_ended.wait_timeout(lookups, time_left);
            lookups = wait_result.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// As [`Self::find`], for a runtime, which keeps the deadline.
    #[cfg(feature = "tokio")]
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> Resolved {
        let ended_before = match self.begin_lookup(host, port) {
            LookupState::Resolved(resolved) => return resolved,
            LookupState::Running(ended_before) => ended_before,
        };
        loop {
            // Created before the check, so that a lookup that ends in between wakes it.
            let notified = self.shared.lookup_ended_async.notified();
            let resolved = self.shared.lookups().resolved_after(ended_before);
            if let Some(resolved) = resolved {
                return resolved;
            }
            notified.await;
        }
    }

    fn begin_lookup(&self, host: &str, port: u16) -> LookupState {
        let mut lookups = self.shared.lookups();
        if !lookups.is_running {
            if let Some(resolved) = lookups.fresh_result() {
                return LookupState::Resolved(resolved);
            }
            if let Err(error) = self.spawn_lookup(host, port) {
                return LookupState::Resolved(Err(format!("cannot resolve {host}: {error}")));
            }
            lookups.is_running = true;
        }
        LookupState::Running(lookups.ended_count)
    }

    fn spawn_lookup(&self, host: &str, port: u16) -> std::io::Result<()> {
        let (host, lookup, shared) = (host.to_owned(), self.lookup.clone(), self.shared.clone());
        let look_up = move || {
            let resolved = lookup(&host, port);
            shared.end_lookup(resolved.map_err(|error| format!("cannot resolve {host}: {error}")));
        };
        let thread = std::thread::Builder::new().name("glasscache-dns".into());
        thread.spawn(look_up).map(drop)
    }

    /// The addresses of a name, the one that took a connection last at the front.
    pub(crate) fn last_connected_first(&self, mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let last_connected = *self.last_connected.lock().unwrap_or_else(PoisonError::into_inner);
        let index = addresses.iter().position(|&address| Some(address) == last_connected);
        if let Some(front) = index.and_then(|index| addresses.get_mut(..=index)) {
            front.rotate_right(1);
        }
        addresses
    }

    /// Notes the address that took a connection.
    pub(crate) fn remember_connected(&self, address: Option<SocketAddr>) {
        if address.is_some() {
            *self.last_connected.lock().unwrap_or_else(PoisonError::into_inner) = address;
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("last_connected", &self.last_connected)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn address(last_octet: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last_octet], 7))
    }

    /// A resolver whose lookups wait for the gate, and how many were started.
    fn gated_resolver(gate: &Arc<Mutex<()>>) -> (Resolver, Arc<AtomicUsize>) {
        let started_count = Arc::new(AtomicUsize::new(0));
        let (gate, lookup_started_count) = (gate.clone(), started_count.clone());
        let resolver = Resolver::new(move |_, _| {
            lookup_started_count.fetch_add(1, Ordering::SeqCst);
            drop(gate.lock().unwrap());
            Ok(vec![address(1)])
        });
        (resolver, started_count)
    }

    #[test]
    fn callers_that_give_up_waiting_for_a_name_share_one_lookup() {
        let gate = Arc::default();
        let (resolver, started_count) = gated_resolver(&gate);
        let gate_guard = gate.lock().unwrap();
        for _ in 0..20 {
            let short_deadline = Instant::now() + Duration::from_millis(1);
            assert_eq!(resolver.find("a.name", 7, short_deadline), None);
        }
        assert!(started_count.load(Ordering::SeqCst) <= 1);
        drop(gate_guard);
        let resolved = resolver.find("a.name", 7, Instant::now() + MINUTE);
        assert_eq!(resolved, Some(Ok(vec![address(1)])));
    }

    #[test]
    fn addresses_that_arrive_after_the_deadline_of_one_caller_serve_the_next() {
        // A try during which this thread is stalled for a second proves nothing: there may be several.
        let is_result_reused = || {
            let gate = Arc::default();
            let (resolver, _) = gated_resolver(&gate);
            let gate_guard = gate.lock().unwrap();
            assert_eq!(resolver.find("a.name", 7, Instant::now()), None);
            drop(gate_guard);
            let deadline = Instant::now() + MINUTE;
            while resolver.shared.lookups().ended_count == 0 {
                assert!(Instant::now() < deadline, "the lookup never ends");
                std::thread::yield_now();
            }
            resolver.find("a.name", 7, Instant::now()) == Some(Ok(vec![address(1)]))
        };
        assert!((0..20).any(|_| is_result_reused()));
    }

    #[test]
    fn a_failed_lookup_is_not_used_again() {
        let is_first = Mutex::new(true);
        let resolver = Resolver::new(move |_, _| {
            if std::mem::take(&mut *is_first.lock().unwrap()) {
                return Err(std::io::ErrorKind::NotFound.into());
            }
            Ok(vec![address(1)])
        });
        let deadline = Instant::now() + MINUTE;
        let failure = resolver.find("a.name", 7, deadline).unwrap().unwrap_err();
        assert!(failure.starts_with("cannot resolve a.name: "), "{failure}");
        assert_eq!(resolver.find("a.name", 7, deadline), Some(Ok(vec![address(1)])));
    }

    #[test]
    fn the_address_that_accepted_a_connection_moves_to_the_front_and_the_others_keep_their_order() {
        let resolver = Resolver::default();
        let addresses = vec![address(1), address(2), address(3)];
        assert_eq!(resolver.last_connected_first(addresses.clone()), addresses);
        resolver.remember_connected(Some(address(3)));
        resolver.remember_connected(None);
        let expected_order = [address(3), address(1), address(2)];
        assert_eq!(resolver.last_connected_first(addresses), expected_order);
        assert_eq!(resolver.last_connected_first(vec![address(1)]), [address(1)]);
    }
}
