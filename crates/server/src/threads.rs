//! The threads of a server: they are started and wait for a latch, are watched, and are joined in a fixed order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::thread::gettid;

use crate::failure;
use crate::http::{HttpHandle, HttpSocket};
use crate::live_thread;
use crate::login_thread;
use crate::shared::Shared;
use crate::shared::error::Error;
use crate::start_latch::StartLatch;
use crate::watchdog;

/// The threads of one server.
pub(crate) struct Threads {
    /// The threads that serve.
    serving: Vec<JoinHandle<()>>,
    /// The kernel's ids of all threads that were spawned.
    ids: Vec<i32>,
    /// The thread that serves HTTP, which ends after the serving ones: it reports that they end.
    http: Option<HttpHandle>,
    /// The watchdog and the evaluation of the load, which end when they are no longer needed.
    background: Vec<BackgroundThread>,
    /// The thread that verifies passwords.
    login_thread: Option<JoinHandle<()>>,
    /// The latch at which they wait until they may serve.
    start_latch: Arc<StartLatch>,
    /// What ends the process if one of them panics.
    shared: Arc<Shared>,
}

/// A thread that ends when the sender is dropped.
struct BackgroundThread {
    stop_sender: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Threads {
    pub(crate) fn new(shared: Arc<Shared>) -> Threads {
        Threads {
            serving: Vec::new(),
            ids: Vec::new(),
            http: None,
            background: Vec::new(),
            login_thread: None,
            start_latch: Arc::default(),
            shared,
        }
    }

    /// The kernel's ids of the threads, in the order of their start.
    pub(crate) fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// Starts a thread that serves.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn spawn_serving(
        &mut self,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), Error> {
        let thread = self.spawn_essential(name, run)?;
        self.serving.push(thread);
        Ok(())
    }

    /// Starts the thread that verifies passwords, if there are users. It runs until the last worker has ended, so
    /// that begun logins are completed.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn start_login_thread(&mut self, shared: &Arc<Shared>) -> Result<(), Error> {
        if shared.logins.queue().is_some() {
            let shared = Arc::clone(shared);
            let run = move || {
                if let Some(queue) = shared.logins.queue() {
                    login_thread::run(&shared, queue);
                }
            };
            self.login_thread = Some(self.spawn_essential("gc-login".to_owned(), run)?);
        }
        Ok(())
    }

    /// Starts the thread of HTTP, if there are sockets for it.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn start_http_thread(
        &mut self,
        shared: &Arc<Shared>,
        sockets: Vec<HttpSocket>,
    ) -> Result<(), Error> {
        if !sockets.is_empty() {
            let start_latch = Arc::clone(&self.start_latch);
            self.http = Some(HttpHandle::start(shared, sockets, move || start_latch.wait())?);
        }
        Ok(())
    }

    /// Starts the watchdog, unless the settings switch it off.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn start_watchdog(&mut self, shared: &Arc<Shared>) -> Result<(), Error> {
        if shared.config.watchdog_ticks == 0 {
            return Ok(());
        }
        self.spawn_background("gc-watchdog", shared, watchdog::run)
    }

    /// Starts the thread that evaluates the load.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn start_live_thread(&mut self, shared: &Arc<Shared>) -> Result<(), Error> {
        self.spawn_background("gc-live", shared, live_thread::run)
    }

    /// Starts a thread that runs until the last worker has ended.
    fn spawn_background(
        &mut self,
        name: &str,
        shared: &Arc<Shared>,
        run: fn(&Shared, &mpsc::Receiver<()>),
    ) -> Result<(), Error> {
        let shared = Arc::clone(shared);
        let (stop_sender, stop_receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&shared, &stop_receiver))
            .map_err(Error::System)?;
        self.background.push(BackgroundThread { stop_sender, thread });
        Ok(())
    }

    /// Lets the threads serve.
    pub(crate) fn release_start_latch(&self) {
        self.start_latch.release();
    }

    /// Makes the threads end, unless they serve already.
    pub(crate) fn abandon(&self) {
        self.start_latch.abandon();
    }

    /// Waits until all have ended.
    pub(crate) fn join(&mut self, shared: &Shared) {
        for thread in self.serving.drain(..) {
            let _ = thread.join();
        }
        if let Some(http) = self.http.take() {
            http.join();
        }
        if let Some(thread) = self.login_thread.take() {
            shared.logins.end();
            let _ = thread.join();
        }
        // The watchdog runs until the last worker has ended: a worker that hangs must not keep the process alive.
        for BackgroundThread { stop_sender, thread } in self.background.drain(..) {
            drop(stop_sender);
            let _ = thread.join();
        }
    }

    /// Starts a thread without which the server cannot continue: if it panics, the process ends.
    fn spawn_essential(
        &mut self,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle<()>, Error> {
        let shared = Arc::clone(&self.shared);
        let thread_name = name.clone();
        let start_latch = Arc::clone(&self.start_latch);
        let (id_sender, id_receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                let _ = id_sender.send(gettid().as_raw_nonzero().get());
                if !start_latch.wait() {
                    return;
                }
                // Nothing that the thread leaves behind is used again: the process ends.
                if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
                    let message = failure::panic_message(&*payload);
                    let reason = format!("thread {thread_name} panicked: {message}");
                    failure::end_process(&shared, &reason);
                }
            })
            .map_err(Error::System)?;
        self.ids.extend(id_receiver.recv());
        Ok(thread)
    }
}
