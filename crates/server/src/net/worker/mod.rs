//! A worker: one thread, one epoll, its connections for life.
//!
//! An iteration of its loop polls the ready sockets, serves each connection, then, for a bounded time, the deferred
//! ones, then does a bounded piece of the store's background work. While it sleeps it is offline, so that memory
//! that others release can be reused.

mod deferred;
mod drain;
mod lifecycle;
mod logins;
mod pause;
mod read_ahead;
mod slots;
mod watching;

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use glasscache_store::Seconds;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use self::deferred::{
    Deferred, OVERDUE_CHECK_INTERVAL, SMALL_REQUEST_BYTES, UPLOAD_PARK_TIME, WRITE_PARK_TIME,
};
use self::logins::{LOGIN_CHECK_INTERVAL, PendingLogins};
use self::read_ahead::{READ_AHEAD_CONNECTIONS, ReadAhead};
use self::slots::{Slots, WAKE_TOKEN};
use self::watching::WatchingConnections;
use crate::net::accept_queue::AcceptQueue;
use crate::net::connection::{Buffers, Connection, Interest, NextStep, RunClock};
use crate::session::context::Context;
use crate::shared::Shared;
use crate::shared::command_times::RunSampler;
use crate::shared::connection_info::CloseReason;
use crate::shared::counters::Counters;
use crate::shared::cpu_time::thread_cpu_time;
use crate::shared::events;
use crate::shared::slow_commands::{CommandText, SlowCommand, WaitReason};
use crate::shared::stalled;
use crate::shared::wake::Waker;
use crate::shared::watchers::kind;

/// Maximum number of events per poll.
const EVENTS_MAX: usize = 64;

/// A sleeping worker wakes about once a second to check for idle connections and expired items.
const SLEEP_MAX: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// [`UPLOAD_PARK_TIME`] in the form of epoll.
const PARKED_SLEEP: Timespec =
    Timespec { tv_sec: 0, tv_nsec: UPLOAD_PARK_TIME.subsec_nanos() as i64 };

/// [`LOGIN_CHECK_INTERVAL`] in the form of epoll.
const LOGIN_SLEEP: Timespec =
    Timespec { tv_sec: 0, tv_nsec: LOGIN_CHECK_INTERVAL.subsec_nanos() as i64 };

/// [`WRITE_PARK_TIME`] in the form of epoll.
const WRITE_SLEEP: Timespec =
    Timespec { tv_sec: 0, tv_nsec: WRITE_PARK_TIME.subsec_nanos() as i64 };

/// [`OVERDUE_CHECK_INTERVAL`] in the form of epoll.
const OVERDUE_SLEEP: Timespec =
    Timespec { tv_sec: 0, tv_nsec: OVERDUE_CHECK_INTERVAL.subsec_nanos() as i64 };

/// One worker's state.
#[expect(clippy::struct_field_names, reason = "the store has workers too")]
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) store_worker: glasscache_store::Worker,
    pub(crate) counters: Arc<Counters>,
    pub(crate) waker: Waker,
    pub(crate) accept_queue: AcceptQueue,
    epoll_fd: OwnedFd,
    connections: Slots,
    buffers: Buffers,
    read_ahead: ReadAhead,
    /// Deferred connections.
    deferred: Deferred,
    /// Connections that have to log in.
    logins: PendingLogins,
    watching: WatchingConnections,
    /// Chooses the runs whose time is measured.
    run_sampler: RunSampler,
    /// A slow command of this iteration was recorded.
    has_recorded_slow: bool,
    last_idle_check_s: u32,
    /// Connections that the successor has if it takes over.
    handed_over: Vec<u64>,
    /// A handover failed after connections were sent: until the successor ends it has their sockets too.
    may_share_sockets: bool,
    /// The second in which this iteration runs.
    now: Seconds,
}

/// What woke a connection.
#[derive(Clone, Copy)]
enum ServeReason {
    Input,
    /// Input that was read ahead for the event with this index.
    ReadAhead(usize),
    /// Its socket is writable, or what it waited for has come.
    Resume,
    /// It is the first of those that wait for memory.
    MemoryQueueHead,
    /// It waits for memory, and has sent more than others that do or that hold some.
    MostSent,
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        store_worker: glasscache_store::Worker,
        (counters, waker): (Arc<Counters>, Waker),
        accept_queue: AcceptQueue,
    ) -> rustix::io::Result<Worker> {
        let epoll_fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll_fd, waker.as_fd(), EventData::new_u64(WAKE_TOKEN), EventFlags::IN)?;
        Ok(Worker {
            now: shared.clock.start_second(),
            shared,
            store_worker,
            counters,
            waker,
            accept_queue,
            epoll_fd,
            connections: Slots::default(),
            buffers: Buffers::new(),
            read_ahead: ReadAhead::new(),
            deferred: Deferred::new(),
            logins: PendingLogins::new(),
            watching: WatchingConnections::new(),
            run_sampler: RunSampler::new(),
            has_recorded_slow: false,
            last_idle_check_s: 0,
            handed_over: Vec::new(),
            may_share_sockets: false,
        })
    }

    /// Serves until the server stops.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut has_work = false;
        self.store_worker.go_online();
        self.counters.progress_counter.begin_work();
        loop {
            if !self.shared.phases.is_running() {
                if self.shared.phases.is_ending() {
                    break;
                }
                self.pause();
                continue;
            }
            self.wait(&mut events, has_work);
            // Only if it is asked for: a system call in each iteration is too much otherwise.
            let cpu_time_before = self.shared.config.debug.then(thread_cpu_time);
            let examined_before = self.counters.examined.get();
            self.run_iteration(&events);
            has_work = self.store_worker.maintain(self.now);
            self.publish_evictions();
            if self.shared.store.needs_backing() {
                self.shared.listener_waker.wake();
            }
            if let Some(cpu_time_before) = cpu_time_before {
                let cpu_time = thread_cpu_time().saturating_sub(cpu_time_before);
                self.counters.iteration_cpu_us_max.raise(cpu_time.as_micros() as u64);
            }
            let examined = self.counters.examined.get() - examined_before;
            self.counters.iteration_examined_max.raise(examined);
        }
        if self.shared.phases.is_replaced() {
            self.finish_replaced();
        } else {
            self.drain(&mut events);
        }
        self.close_all();
        self.store_worker.go_offline();
        self.counters.progress_counter.begin_sleep();
    }

    /// Sleeps until something is ready, unless there is work.
    fn wait(&mut self, events: &mut Vec<epoll::Event>, has_work: bool) {
        events.clear();
        self.store_worker.pass();
        if has_work || self.deferred.has_ready_work() || self.deferred.must_check_memory_queue() {
            self.counters.progress_counter.count_iteration();
            let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
            let _ =
                epoll::wait(&self.epoll_fd, rustix::buffer::spare_capacity(events), Some(&no_wait));
            return;
        }
        self.store_worker.go_offline();
        self.counters.progress_counter.begin_sleep();
        let sleep = if self.deferred.has_waiting_writes() {
            WRITE_SLEEP
        } else if self.deferred.has_parked_uploads() {
            PARKED_SLEEP
        } else if self.deferred.has_waiters() {
            OVERDUE_SLEEP
        } else if self.logins.must_check() {
            LOGIN_SLEEP
        } else {
            SLEEP_MAX
        };
        let sleep = match self.watching.sleep_time() {
            Some(watch_sleep) if sleep.tv_sec > 0 || watch_sleep.tv_nsec < sleep.tv_nsec => {
                watch_sleep
            }
            _ => sleep,
        };
        // An interrupted wait is an iteration without events.
        let _ = epoll::wait(&self.epoll_fd, rustix::buffer::spare_capacity(events), Some(&sleep));
        self.counters.progress_counter.begin_work();
        self.store_worker.go_online();
    }

    fn run_iteration(&mut self, events: &[epoll::Event]) {
        let began_at = Instant::now();
        self.deferred.begin_iteration(began_at);
        let now = self.shared.clock.now();
        if now != std::mem::replace(&mut self.now, now) {
            self.shared.clock.follow_wall_clock();
        }
        self.counters.iterations.bump();
        for event_group in events.chunks(READ_AHEAD_CONNECTIONS) {
            self.receive_ahead(event_group);
            for (event_index, event) in event_group.iter().enumerate() {
                self.handle_event(event_index, event);
            }
        }
        self.serve_queue();
        self.retry_parked_uploads(began_at);
        self.retry_writes(began_at);
        stalled::close_stalled(&self.shared, self.now);
        self.serve_memory_queue();
        self.serve_overdue(began_at);
        self.close_late_logins(began_at);
        self.serve_watchers(began_at);
        self.close_idle();
        self.record_iteration_time(began_at, !events.is_empty());
    }

    fn handle_event(&mut self, event_index: usize, event: &epoll::Event) {
        // The kernel's structure is packed: its fields are copied, never borrowed.
        let (slot_key, flags) = ({ event.data }.u64(), { event.flags });
        if slot_key == WAKE_TOKEN {
            self.waker.clear();
            self.add_accepted_connections();
            self.close_marked();
            self.serve_decided_logins();
            self.close_displaced();
            self.serve_watchers_where(|watcher| watcher.mode.is_urgent_watch());
        } else if self.connections.record_hangup(slot_key, flags) {
            self.close(slot_key, CloseReason::Error);
        } else if flags.contains(EventFlags::OUT) {
            self.serve_or_queue(slot_key, ServeReason::Resume);
        } else if self.read_ahead.has_received(event_index) {
            self.serve(slot_key, ServeReason::ReadAhead(event_index));
        } else {
            self.serve_or_queue(slot_key, ServeReason::Input);
        }
    }

    fn record_iteration_time(&mut self, began_at: Instant, has_served: bool) {
        let elapsed = began_at.elapsed();
        let has_recorded = std::mem::take(&mut self.has_recorded_slow);
        if elapsed >= self.shared.slow_commands.limit() && has_served && !has_recorded {
            // None of its runs was measured.
            self.shared.record_slow(SlowCommand {
                command: CommandText::unknown(),
                client: None,
                bytes: None,
                time: elapsed,
                reason: WaitReason::Execution,
                waited: elapsed,
                ended_at: self.now,
            });
        }
        self.counters.record_iteration_time(elapsed);
    }

    fn serve(&mut self, slot_key: u64, reason: ServeReason) {
        let Some(connection) = self.connections.get_mut(slot_key) else {
            return;
        };
        let info = Arc::clone(&connection.info);
        let may_refuse = Cell::new(self.deferred.may_refuse(connection));
        let refuses_incomplete = Cell::new(false);
        self.buffers.run_clock = RunClock::new(
            self.deferred.iteration_began_at(),
            self.run_sampler.begin(),
            connection.command_timer.is_waiting(),
        );
        let context = Context {
            store_worker: &self.store_worker,
            shared: &self.shared,
            counters: &self.counters,
            now: self.now,
            connection: &info,
            waker: &self.waker,
            quota_bytes: self.deferred.quota_bytes(),
            pressure: self.shared.peer_memory.pressure(),
            is_first_waiter: matches!(reason, ServeReason::MemoryQueueHead),
            is_overdue: matches!(reason, ServeReason::MostSent)
                || connection.is_overdue(self.deferred.iteration_began_at()),
            is_tls: connection.stream.is_tls(),
            refuses_incomplete: &refuses_incomplete,
            logs_commands: self.shared.logs_at(2),
            may_refuse: &may_refuse,
        };
        let moved_bytes_before = self.counters.bytes_moved();
        let counts_before =
            self.buffers.run_clock.is_measured().then(|| self.counters.command_counts());
        let next_step =
            run_connection(connection, reason, &self.read_ahead, &context, &mut self.buffers);
        if let Some(counts_before) = counts_before {
            self.counters.record_run_time(&counts_before, self.buffers.run_clock.elapsed());
        }
        let next_step = connection.requeue_if_received(next_step);
        let moved_bytes = self.counters.bytes_moved() - moved_bytes_before;
        connection.command_timer.add_bytes(moved_bytes);
        let wait_reason = connection.wait_reason(next_step);
        let run_clock = &mut self.buffers.run_clock;
        if let Some(slow) = connection.command_timer.finish_run(wait_reason, &context, run_clock) {
            self.has_recorded_slow = true;
            self.shared.record_slow(slow);
        }
        if connection.session.awaits_login() {
            self.logins.add_unauthenticated(slot_key, connection, Instant::now());
            if moved_bytes > 0 {
                let is_verifying = connection.session.is_login_pending();
                self.shared.connections.record_login_effort(&info, is_verifying);
            }
        }
        if connection.mode.is_watching() {
            self.watching.add(slot_key);
        }
        let waited_for_server = connection.memory_wait.is_for_server();
        connection.record_memory(
            next_step,
            moved_bytes,
            &context,
            self.deferred.iteration_began_at(),
        );
        if info.is_unproven.load(Ordering::Relaxed) {
            let progress = (moved_bytes > 0, waited_for_server);
            record_progress(connection, &self.shared, self.now, progress);
        }
        let is_first_waiter = context.is_first_waiter;
        self.apply_next_step(slot_key, next_step, is_first_waiter, moved_bytes);
    }

    /// Closes, parks or requeues a connection after it was served, or waits for its next event.
    fn apply_next_step(
        &mut self,
        slot_key: u64,
        next_step: NextStep,
        is_first_waiter: bool,
        moved_bytes: u64,
    ) {
        let Some(connection) = self.connections.get_mut(slot_key) else {
            return;
        };
        match next_step {
            NextStep::Wait => {
                if !connection.is_transferring()
                    && connection.command_timer.take_bytes() < SMALL_REQUEST_BYTES
                {
                    self.deferred.record_small_request();
                }
            }
            NextStep::Requeue => {
                self.counters.conn_yields.bump();
                self.deferred.add(slot_key, connection, ServeReason::Resume);
            }
            NextStep::RequeueAfterSmallRequests => {
                self.counters.conn_yields.bump();
                self.deferred.add_to_front(slot_key, connection);
            }
            NextStep::WaitForMemory(_) => {
                self.deferred.queue_for_memory(slot_key, connection, is_first_waiter);
            }
            NextStep::WaitForLogin => self.logins.add_verifying(slot_key, connection),
            NextStep::WaitForUpload | NextStep::WaitForSegment { .. } => {}
            NextStep::Close(close_reason) => return self.close(slot_key, close_reason),
        }
        match next_step {
            NextStep::WaitForUpload => self.park_upload(slot_key),
            NextStep::WaitForSegment { is_new } => {
                self.park_write(slot_key, is_new || moved_bytes > 0);
            }
            _ => self.unpark(slot_key),
        }
        // Nothing is borrowed between two connections: memory that others released may be reused.
        self.store_worker.pass();
        self.update_epoll_interest(slot_key);
    }

    /// Updates epoll if the connection waits for other events than before.
    fn update_epoll_interest(&mut self, slot_key: u64) {
        let Some(connection) = self.connections.get_mut(slot_key) else {
            return;
        };
        let interest = connection.wanted_interest();
        if interest == std::mem::replace(&mut connection.interest, interest) {
            return;
        }
        let flags = match interest {
            Interest::Input => EventFlags::IN,
            Interest::NewInput => EventFlags::IN | EventFlags::RDHUP | EventFlags::ET,
            Interest::Writable => EventFlags::OUT,
            // The end of a stream cannot be masked, and is reported again and again unless edge-triggered.
            Interest::Nothing => EventFlags::ET,
        };
        let data = EventData::new_u64(slot_key);
        if epoll::modify(&self.epoll_fd, connection.stream.socket(), data, flags).is_err() {
            self.close(slot_key, CloseReason::Error);
        }
    }

    fn publish_evictions(&mut self) {
        if self.shared.watchers.is_watched(kind::EVICTIONS) {
            let now = self.shared.clock.now();
            self.store_worker
                .take_evicted(&mut |item| events::publish_eviction(&self.shared, item, now));
        }
    }
}

/// Lets a connection continue: with input that was received ahead, with what its socket has, or where it stopped.
#[inline]
fn run_connection(
    connection: &mut Connection,
    reason: ServeReason,
    read_ahead: &ReadAhead,
    context: &Context<'_>,
    buffers: &mut Buffers,
) -> NextStep {
    match reason {
        ServeReason::ReadAhead(event_index) => {
            connection.serve_read_ahead(read_ahead.received_input(event_index), context, buffers)
        }
        ServeReason::Input if !connection.has_pending_output() => {
            connection.on_readable(context, buffers)
        }
        _ => connection.resume(context, buffers),
    }
}

/// Notes what a peer without a whole request so far has done: who has done least goes first where connections run short.
/// It has moved bytes in this run, or not, and before that it waited for the server, or not.
#[cold]
fn record_progress(
    connection: &Connection,
    shared: &Shared,
    now: Seconds,
    (has_moved_bytes, waited_for_server): (bool, bool),
) {
    let (info, waits_for_server) = (&connection.info, connection.memory_wait.is_for_server());
    if connection.has_sent_request() {
        shared.connections.record_proof(info);
    } else if has_moved_bytes || waits_for_server != waited_for_server {
        shared.connections.record_part(info, now, waits_for_server);
    }
}
