//! The thread of HTTP: it accepts, serves and closes, and looks at the workers at each tick.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use rustix::thread::gettid;

use super::HttpSocket;
use super::connections::Connections;
use super::health::TICK_MS;
use super::routes::Routes;
use crate::shared::Shared;
use crate::shared::wake::Waker;

/// The priority: a flood of requests takes no more than a tenth of what a busy worker gets of a processor.
const NICENESS: i32 = 10;
/// Time between two ticks.
const TICK: Duration = Duration::from_millis(TICK_MS);

/// The state of the thread.
pub(super) struct HttpThread {
    shared: Arc<Shared>,
    sockets: Vec<HttpSocket>,
    /// Wakes the thread to end it.
    waker: Waker,
    connections: Connections,
    routes: Routes,
    next_tick: Instant,
}

impl HttpThread {
    pub(super) fn new(shared: Arc<Shared>, sockets: Vec<HttpSocket>, waker: Waker) -> HttpThread {
        HttpThread {
            routes: Routes::new(Arc::clone(&shared)),
            shared,
            sockets,
            waker,
            connections: Connections::default(),
            next_tick: Instant::now(),
        }
    }

    /// Serves until it is woken.
    pub(super) fn run(mut self) {
        // Of this thread alone: in Linux each has its own.
        let _ = setpriority_process(Some(gettid()), NICENESS);
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.serve())) {
                Ok(()) => return,
                // The cache goes on; the panic hook has logged it.
                Err(_) => self.connections.clear(),
            }
        }
    }

    fn serve(&mut self) {
        loop {
            // A successor accepts on the same sockets.
            let is_replaced = self.shared.phases.is_replaced();
            let sockets = if is_replaced { &[][..] } else { &self.sockets[..] };
            let ready = self.connections.wait(&self.waker, sockets, self.next_tick);
            let Some(ready) = ready else { return };
            let routes = &self.routes;
            self.connections.advance(
                &ready,
                &self.sockets,
                |port, host_names, request, streams| {
                    routes.respond(port, host_names, request, streams)
                },
            );
            self.tick(Instant::now());
            if !self.shared.phases.is_replaced() {
                self.connections.accept(&self.sockets);
            }
        }
    }

    fn tick(&mut self, now: Instant) {
        if now < self.next_tick {
            return;
        }
        // Ticks that were missed, as in a suspended process, are left out.
        self.next_tick = now + TICK;
        if let Some(event) = self.routes.tick(now, self.connections.has_streams()) {
            self.connections.push_events(&event, now);
        }
    }
}
