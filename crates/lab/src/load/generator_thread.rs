//! One generator thread: its connections, its epoll, and the loop between them.
//!
//! An open loop spins when the next request is due within a millisecond: a sleeping thread would add the
//! wake-up of an idle CPU to every latency it reports.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};

use super::by_second::LatenciesBySecond;
use super::connection::{Clock, Connection};
use super::pace::Arrivals;
use super::random::mix;
use super::{Error, LoadPlan, Pace, Schedule, Tally, Workload, pin};

/// Bytes read at once; larger buffers fall out of the second-level cache.
const READ_BYTES: usize = 256 * 1024;

/// A sleeping generator checks its stop flag this often.
const SLEEP_NS_MAX: u64 = 20_000_000;

/// Below this distance to the next due time an open loop spins.
const SPIN_NS_MAX: u64 = 1_200_000;

/// How long a run waits for the replies to its last requests at most.
const DRAIN_NS_MAX: u64 = 2_000_000_000;

/// What a thread of a run gets besides the plan and its workload.
pub(super) struct ThreadContext<'r> {
    pub(super) thread_index: usize,
    pub(super) thread_count: usize,
    /// Dropped when the thread has connected or failed.
    pub(super) connecting: Sender<Infallible>,
    /// Set when all threads have connected or failed.
    pub(super) schedule: &'r OnceLock<Schedule>,
    /// Set by a thread that fails after that, so that the others end.
    pub(super) any_thread_failed: &'r AtomicBool,
}

/// The result of one thread.
pub(super) struct ThreadResult<W> {
    pub(super) tally: Tally,
    pub(super) workload: W,
    pub(super) busy_cores: f64,
    /// What ended it early.
    pub(super) error: Option<Error>,
}

/// What one thread of a run owns.
struct GeneratorThread<'p, W> {
    plan: &'p LoadPlan,
    any_thread_failed: &'p AtomicBool,
    workload: W,
    connections: Vec<Connection>,
    epoll: rustix::fd::OwnedFd,
    buffer: Vec<u8>,
    tally: Tally,
    clock: Clock,
    start: Instant,
    /// Connections without a request, oldest first (open loop only).
    idle_connections: VecDeque<usize>,
    /// Since when replies are pending and none has arrived.
    silent_since_ns: u64,
    unfinished_connections: usize,
}

/// Runs one thread's share of `plan` to its end.
pub(super) fn run<'p, W: Workload>(
    plan: &'p LoadPlan,
    thread: ThreadContext<'p>,
    workload: W,
) -> Result<ThreadResult<W>, Error> {
    if let Some(&cpu) = plan.cpus.get(thread.thread_index % plan.cpus.len().max(1)) {
        pin(None, &[cpu])?;
    }
    let mut generator = GeneratorThread::connect(plan, &thread, workload)?;
    drop(thread.connecting);
    generator.set_schedule(thread.schedule.wait());
    std::thread::sleep(generator.start.saturating_duration_since(Instant::now()));
    let (started, cpu_time_before) = (Instant::now(), read_thread_cpu_time());
    let run_result = match plan.pace {
        Pace::Closed => generator.run_closed_loop(),
        Pace::Open(rate) => {
            let seed = mix(plan.seed ^ (thread.thread_index as u64 + 1));
            generator.run_open_loop(Arrivals::new(rate / thread.thread_count as f64, seed))
        }
    };
    if run_result.is_err() {
        thread.any_thread_failed.store(true, Ordering::Relaxed);
    }
    let busy_cores = read_thread_cpu_time().saturating_sub(cpu_time_before).as_secs_f64()
        / started.elapsed().as_secs_f64().max(1e-9);
    Ok(ThreadResult {
        tally: generator.tally,
        workload: generator.workload,
        busy_cores,
        error: run_result.err(),
    })
}

impl<'p, W: Workload> GeneratorThread<'p, W> {
    fn connect(plan: &'p LoadPlan, thread: &ThreadContext<'p>, workload: W) -> Result<Self, Error> {
        let connection_count = (plan.connections / thread.thread_count
            + usize::from(thread.thread_index < plan.connections % thread.thread_count))
        .max(1);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(connection_count);
        for connection_index in 0..connection_count {
            let connection =
                Connection::open(&plan.target, connection_index, plan.check, plan.measures_delay)?;
            let data = epoll::EventData::new_u64(connection_index as u64);
            epoll::add(&epoll, connection.socket(), data, epoll::EventFlags::IN)?;
            connections.push(connection);
        }
        let clock = Clock {
            now_ns: 0,
            window_start_ns: 0,
            window_end_ns: u64::MAX,
            counts_by_intended_time: plan.pace != Pace::Closed,
            delay_ns: None,
        };
        Ok(Self {
            plan,
            any_thread_failed: thread.any_thread_failed,
            workload,
            epoll,
            buffer: vec![0; READ_BYTES],
            tally: Tally {
                by_second: plan.keeps_second_histograms.then(LatenciesBySecond::default),
                ..Tally::new(clock.counts_by_intended_time)
            },
            clock,
            start: Instant::now(),
            idle_connections: (0..connection_count).collect(),
            silent_since_ns: 0,
            unfinished_connections: connection_count,
            connections,
        })
    }

    /// Measures time from the start of the schedule, and counts its window.
    fn set_schedule(&mut self, schedule: &Schedule) {
        let offset_ns = |instant: Option<Instant>, default_ns: u64| {
            instant.map_or(default_ns, |instant| {
                instant.saturating_duration_since(schedule.start).as_nanos() as u64
            })
        };
        self.start = schedule.start;
        self.clock.window_start_ns = offset_ns(schedule.window_start, 0);
        self.clock.window_end_ns = offset_ns(schedule.window_end, u64::MAX);
    }

    /// Ends when the last requests have their replies: one that was carried out later could bring back a key that has
    /// been removed meanwhile.
    fn run_closed_loop(&mut self) -> Result<(), Error> {
        let drain_end_ns = self.clock.window_end_ns.saturating_add(DRAIN_NS_MAX);
        self.update_clock();
        self.silent_since_ns = self.clock.now_ns;
        for connection_index in 0..self.connections.len() {
            self.send_next(connection_index, self.clock.now_ns)?;
        }
        let mut events = Vec::with_capacity(self.connections.len().max(64));
        while self.unfinished_connections > 0 && !self.is_stopped() {
            let is_schedule_over = self.clock.now_ns >= self.clock.window_end_ns;
            if is_schedule_over && self.connections.iter().all(Connection::is_idle) {
                break;
            }
            self.check_silence(drain_end_ns)?;
            self.wait_for_events(&mut events, SLEEP_NS_MAX)?;
            for event in events.drain(..) {
                let (connection_index, flags) = (event.data.u64() as usize, event.flags);
                let is_ready = self.handle_event(connection_index, flags)?;
                if is_ready && self.clock.now_ns < self.clock.window_end_ns {
                    self.send_next(connection_index, self.clock.now_ns)?;
                }
            }
            if self.clock.now_ns > drain_end_ns {
                return self.check_silence(drain_end_ns);
            }
        }
        Ok(())
    }

    fn run_open_loop(&mut self, mut arrivals: Arrivals) -> Result<(), Error> {
        let mut events = Vec::with_capacity(self.connections.len().max(64));
        let has_requests_in_flight =
            |generator: &Self| generator.idle_connections.len() < generator.connections.len();
        let drain_end_ns = self.clock.window_end_ns.saturating_add(DRAIN_NS_MAX);
        while self.unfinished_connections > 0 && !self.is_stopped() {
            self.update_clock();
            while arrivals.due_ns() <= self.clock.now_ns
                && arrivals.due_ns() < self.clock.window_end_ns
            {
                if !has_requests_in_flight(self) {
                    self.silent_since_ns = self.clock.now_ns;
                }
                let Some(connection_index) = self.idle_connections.pop_front() else {
                    break;
                };
                self.send_next(connection_index, arrivals.due_ns())?;
                arrivals.advance();
                self.update_clock();
            }
            let is_schedule_over = arrivals.due_ns() >= self.clock.window_end_ns;
            if has_requests_in_flight(self) {
                self.check_silence(drain_end_ns)?;
            }
            if is_schedule_over
                && (!has_requests_in_flight(self) || self.clock.now_ns > drain_end_ns)
            {
                break;
            }
            let until_due_ns = arrivals.due_ns().saturating_sub(self.clock.now_ns);
            let must_wait_for_replies = self.idle_connections.is_empty() || is_schedule_over;
            let sleep_ns = match must_wait_for_replies {
                true => SLEEP_NS_MAX,
                false if until_due_ns < SPIN_NS_MAX => 0,
                false => (until_due_ns - SPIN_NS_MAX).min(SLEEP_NS_MAX),
            };
            self.wait_for_events(&mut events, sleep_ns)?;
            for event in events.drain(..) {
                let (connection_index, flags) = (event.data.u64() as usize, event.flags);
                if self.handle_event(connection_index, flags)? {
                    self.idle_connections.push_back(connection_index);
                }
            }
        }
        Ok(())
    }

    /// Sends the next requests of a connection, which are due at `intended_ns`.
    fn send_next(&mut self, connection_index: usize, intended_ns: u64) -> Result<(), Error> {
        let Some(connection) = self.connections.get_mut(connection_index) else {
            return Ok(());
        };
        if connection.is_finished {
            return Ok(());
        }
        let intended_and_now_ns = (intended_ns, self.clock.now_ns);
        connection.send(
            &mut self.workload,
            self.plan.depth.max(1),
            intended_and_now_ns,
            &mut self.tally,
        )?;
        self.update_interest(connection_index, false)
    }

    /// Handles an epoll event; true if the connection is ready for its next requests.
    fn handle_event(
        &mut self,
        connection_index: usize,
        flags: epoll::EventFlags,
    ) -> Result<bool, Error> {
        let Some(connection) = self.connections.get_mut(connection_index) else {
            return Ok(false);
        };
        let was_waiting_to_write = connection.is_waiting_to_write;
        if was_waiting_to_write && flags.contains(epoll::EventFlags::OUT) {
            connection.flush(&self.workload, &mut self.tally)?;
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
        {
            self.clock.now_ns = self.start.elapsed().as_nanos() as u64;
            connection.receive(
                &mut self.workload,
                &mut self.buffer,
                &mut self.clock,
                &mut self.tally,
            )?;
            self.silent_since_ns = self.clock.now_ns;
        }
        let is_ready = connection.is_idle();
        self.update_interest(connection_index, was_waiting_to_write)?;
        Ok(is_ready)
    }

    /// Keeps epoll's interest and the count of unfinished connections in step with a connection.
    fn update_interest(
        &mut self,
        connection_index: usize,
        was_waiting_to_write: bool,
    ) -> Result<(), Error> {
        let Some(connection) = self.connections.get(connection_index) else {
            return Ok(());
        };
        if connection.is_waiting_to_write != was_waiting_to_write {
            let flags = if connection.is_waiting_to_write {
                epoll::EventFlags::IN | epoll::EventFlags::OUT
            } else {
                epoll::EventFlags::IN
            };
            epoll::modify(
                &self.epoll,
                connection.socket(),
                epoll::EventData::new_u64(connection_index as u64),
                flags,
            )?;
        }
        if connection.is_finished && connection.is_idle() {
            self.unfinished_connections = self.unfinished_connections.saturating_sub(1);
        }
        Ok(())
    }

    fn wait_for_events(
        &mut self,
        events: &mut Vec<epoll::Event>,
        sleep_ns: u64,
    ) -> Result<(), Error> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: sleep_ns.cast_signed() };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.update_clock();
        Ok(())
    }

    fn update_clock(&mut self) {
        self.clock.now_ns = self.start.elapsed().as_nanos() as u64;
    }

    /// Fails if pending replies have not come for too long: at the end of the window, of which the last requests are
    /// awaited until `drain_end_ns`, or at any time.
    fn check_silence(&self, drain_end_ns: u64) -> Result<(), Error> {
        let silent_ns = self.clock.now_ns.saturating_sub(self.silent_since_ns);
        let is_drained = self.clock.now_ns > drain_end_ns && silent_ns >= DRAIN_NS_MAX;
        if is_drained || u128::from(silent_ns) >= self.plan.silence_max.as_nanos() {
            return Err(Error::Silent(Duration::from_nanos(silent_ns)));
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.plan.stop.load(Ordering::Relaxed) || self.any_thread_failed.load(Ordering::Relaxed)
    }
}

/// CPU time of the calling thread.
fn read_thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}
