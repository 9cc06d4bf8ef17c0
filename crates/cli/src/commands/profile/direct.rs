//! The calls of a profile through our own client, on one connection or on several threads.

use std::time::{Duration, Instant};

use glasscache_client::costs::Part;
use glasscache_client::request::Item;
use glasscache_client::{Address, Budget, Client, Error, Options, Placement, StoreMode, WireKey};
use glasscache_lab::load::{Arrivals, Pool, mix};
use glasscache_lab::profile::{Block, CallError, Caller, Cell, Split, WIDTH_VALUE_BYTES};

use crate::live_target::LiveTarget;
use crate::output::{Exit, Failure};

/// How long a call may take: long enough that a slow server is measured, not refused.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Our client against one server.
pub(super) struct Direct<'t> {
    target: &'t LiveTarget,
    client: Client,
    pool: Pool,
    seed: u64,
    threads: usize,
    /// Calls a second over all threads; as fast as replies come without.
    rate: Option<f64>,
}

impl<'t> Direct<'t> {
    /// A client of `target`; `bytes_max` is the longest value.
    pub(super) fn new(
        target: &'t LiveTarget,
        bytes_max: usize,
        seed: u64,
        (threads, rate): (usize, Option<f64>),
    ) -> Result<Direct<'t>, Failure> {
        let refused = |error: Error| Failure::new(Exit::Unreachable, error.to_string());
        let addresses = Address::parse_list(&target.address()).map_err(refused)?;
        let options = Options {
            timeout: CALL_TIMEOUT,
            value_bytes_max: 1 << 30,
            costs: true,
            ..Options::default()
        };
        Ok(Direct {
            target,
            client: Client::new(&addresses, Placement::Ketama, options).map_err(refused)?,
            pool: Pool::new(bytes_max.max(WIDTH_VALUE_BYTES), seed),
            seed,
            threads: threads.max(1),
            rate,
        })
    }

    fn items(&self, cell: Cell) -> Vec<(String, &[u8])> {
        let (kind, number, count, bytes) = match cell {
            Cell::Bytes(bytes) => ("size", bytes, 1, bytes),
            Cell::Keys(keys) => ("width", keys, keys, WIDTH_VALUE_BYTES),
        };
        (0..count)
            .map(|index| {
                let key = format!("glasscache-profile:{:x}:{kind}:{number}:{index}", self.seed);
                let id = mix((number as u64) << 32 | index as u64);
                (key, self.pool.value(id, 0, bytes))
            })
            .collect()
    }

    /// One call with a clock around it; whether all values were there and correct.
    fn call(
        &self,
        items: &[(String, &[u8])],
        keys: &[&[u8]],
        single: bool,
    ) -> Result<(Duration, u64), CallError> {
        let budget = Budget::new(CALL_TIMEOUT);
        if let ([(key, value)], true) = (items, single) {
            let begin = Instant::now();
            let found = self
                .client
                .get(wire(key), false, &budget)
                .map_err(|error| failed(&error))?;
            let time = begin.elapsed();
            let is_right = found.is_some_and(|found| found.bytes == *value);
            return Ok((time, u64::from(!is_right)));
        }
        let begin = Instant::now();
        let (found, failures) = self
            .client
            .get_many(keys, &budget)
            .map_err(|error| failed(&error))?;
        let time = begin.elapsed();
        if let Some((_, error)) = failures.first() {
            return Err(failed(error));
        }
        let is_right = |(index, _, bytes): &&(usize, u32, Vec<u8>)| {
            items.get(*index).is_some_and(|(_, value)| bytes == value)
        };
        let right = found.iter().filter(is_right).count();
        Ok((time, (items.len() - right.min(items.len())) as u64))
    }

    /// The share of one thread of a block.
    fn thread_block(&self, cell: Cell, calls: usize, index: usize) -> Result<Block, CallError> {
        let items = self.items(cell);
        let keys: Vec<&[u8]> = items.iter().map(|(key, _)| key.as_bytes()).collect();
        let rate = self.rate.map(|rate| rate / self.threads as f64);
        let mut arrivals = rate.map(|rate| Arrivals::new(rate, mix(self.seed ^ index as u64)));
        let mut block = Block::default();
        let started = Instant::now();
        for _ in 0..calls {
            // In an open loop a call that starts late is late from the time at which it was due.
            let late = arrivals.as_mut().map_or(Duration::ZERO, |arrivals| {
                let due = Duration::from_nanos(arrivals.due_ns());
                arrivals.advance();
                wait_until(started + due);
                started.elapsed().saturating_sub(due)
            });
            let (time, wrong) = self.call(&items, &keys, matches!(cell, Cell::Bytes(_)))?;
            block.wrong += wrong;
            block.latencies_ns.push((late + time).as_nanos() as u64);
        }
        Ok(block)
    }
}

/// Sleeps to just before `at` and spins the rest: waking up takes longer than a fast call.
fn wait_until(at: Instant) {
    const SPIN: Duration = Duration::from_millis(1);
    std::thread::sleep(
        at.saturating_duration_since(Instant::now())
            .saturating_sub(SPIN),
    );
    while Instant::now() < at {
        std::hint::spin_loop();
    }
}

fn wire(key: &str) -> WireKey<'_> {
    WireKey {
        bytes: key.as_bytes(),
        is_base64: false,
    }
}

fn failed(error: &Error) -> CallError {
    match error {
        Error::Protocol { .. } => CallError::BadData(error.to_string()),
        error => CallError::Unreachable(error.to_string()),
    }
}

impl Caller for Direct<'_> {
    fn fill(&mut self, cell: Cell) -> Result<bool, CallError> {
        for (key, body) in self.items(cell) {
            let item = Item {
                key: wire(&key),
                flags: 0,
                body,
            };
            let budget = Budget::new(CALL_TIMEOUT);
            match self.client.store(StoreMode::Set, item, 0, false, &budget) {
                Ok(_) => {}
                Err(Error::TooLarge { .. }) => return Ok(false),
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(true)
    }

    fn read(&mut self, cell: Cell, calls: usize) -> Result<Block, CallError> {
        if self.threads == 1 {
            return self.thread_block(cell, calls, 0);
        }
        let this = &*self;
        std::thread::scope(|scope| {
            let share = calls.div_ceil(this.threads);
            let threads: Vec<_> = (0..this.threads)
                .map(|index| scope.spawn(move || this.thread_block(cell, share, index)))
                .collect();
            let mut sum = Block::default();
            for thread in threads {
                let ended = thread.join();
                let block =
                    ended.map_err(|_| CallError::BadData("a thread ended early".to_owned()))??;
                sum.latencies_ns.extend(block.latencies_ns);
                sum.wrong += block.wrong;
            }
            Ok(sum)
        })
    }

    fn clear(&mut self, cell: Cell) -> Result<(), CallError> {
        for (key, _) in self.items(cell) {
            let budget = Budget::new(CALL_TIMEOUT);
            self.client
                .delete(wire(&key), false, &budget)
                .map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    fn split(&mut self, bytes: usize, calls: usize) -> Result<Split, CallError> {
        let part = |client: &Client, part: Part| -> u64 {
            let cells = client.costs().by_size();
            cells
                .iter()
                .filter_map(|(_, _, cell)| cell.parts_ns.get(part as usize))
                .sum()
        };
        let (wire_before, meter_before) =
            (part(&self.client, Part::Wire), self.target.meter.read());
        let block = self.thread_block(Cell::Bytes(bytes), calls, 0)?;
        let spent = self.target.meter.read().since(&meter_before);
        let us = |ns: u64| ns as f64 / 1e3 / calls.max(1) as f64;
        let total_us = us(block.latencies_ns.iter().sum());
        let wire_us = us(part(&self.client, Part::Wire) - wire_before).min(total_us);
        let is_visible = self.target.meter.workers() > 0;
        let server_us =
            is_visible.then(|| (spent.server.cpu_s() * 1e6 / calls.max(1) as f64).min(wire_us));
        Ok(Split {
            bytes,
            total_us,
            client_us: total_us - wire_us,
            serialise_us: 0.0,
            compress_us: 0.0,
            network_us: wire_us - server_us.unwrap_or(0.0),
            server_us,
        })
    }
}
