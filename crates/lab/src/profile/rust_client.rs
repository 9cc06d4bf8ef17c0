//! The calls of a profile through our own client, on one connection or on several threads.

use std::time::{Duration, Instant};

use glasscache_client::costs::CostPart;
use glasscache_client::request::Item;
use glasscache_client::{Client, Error, Options, StoreMode};

use super::{CallBlock, Cell, GetTimes, Settings, WIDTH_VALUE_BYTES};
use crate::load::{Arrivals, ValueSource, mix};
use crate::target::{CallError, Target, new_call_budget, to_wire_key};

/// How long all threads call without being measured until each has a connection of its own.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);

/// Our client against one server.
pub(super) struct RustClient<'t> {
    target: &'t Target,
    client: Client,
    value_source: ValueSource,
    seed: u64,
    threads: usize,
    /// Calls a second over all threads; as fast as replies come without.
    rate: Option<f64>,
}

impl<'t> RustClient<'t> {
    /// A client of `target`.
    pub(super) fn new(target: &'t Target, settings: &Settings) -> Result<Self, CallError> {
        let bytes_max = settings.sizes.iter().copied().max().unwrap_or(0);
        Ok(Self {
            target,
            client: target.new_client(true)?,
            value_source: ValueSource::new(bytes_max.max(WIDTH_VALUE_BYTES), settings.seed),
            seed: settings.seed,
            threads: settings.threads.max(1),
            rate: settings.rate,
        })
    }

    fn list_cell_items(&self, cell: Cell) -> Vec<(String, &[u8])> {
        let (cell_kind, cell_number, count, value_bytes) = match cell {
            Cell::Bytes(bytes) => ("size", bytes, 1, bytes),
            Cell::Keys(keys) => ("width", keys, keys, WIDTH_VALUE_BYTES),
        };
        (0..count)
            .map(|index| {
                let key =
                    format!("glasscache-profile:{:x}:{cell_kind}:{cell_number}:{index}", self.seed);
                let id = mix((cell_number as u64) << 32 | index as u64);
                (key, self.value_source.value(id, 0, value_bytes))
            })
            .collect()
    }

    /// One call with a clock around it: its time, and how many values were absent or wrong.
    fn time_call(
        &self,
        items: &[(String, &[u8])],
        keys: &[&[u8]],
        is_single_get: bool,
    ) -> Result<(Duration, u64), CallError> {
        let budget = new_call_budget();
        if let ([(key, value)], true) = (items, is_single_get) {
            let started = Instant::now();
            let found_value = self.client.get(to_wire_key(key), false, &budget)?;
            let elapsed = started.elapsed();
            let is_correct_value =
                found_value.is_some_and(|found_value| found_value.bytes == *value);
            return Ok((elapsed, u64::from(!is_correct_value)));
        }
        let started = Instant::now();
        let (found_values, failures) = self.client.get_many(keys, &budget)?;
        let elapsed = started.elapsed();
        if let Some((_, error)) = failures.into_iter().next() {
            return Err(error.into());
        }
        let has_stored_contents = |(index, _, contents): &&(usize, u32, Vec<u8>)| {
            items.get(*index).is_some_and(|(_, value)| contents == value)
        };
        let correct_count = found_values.iter().filter(has_stored_contents).count();
        Ok((elapsed, (items.len() - correct_count.min(items.len())) as u64))
    }

    /// Measures the calls of a block that one thread makes.
    fn measure_block_of_thread(
        &self,
        cell: Cell,
        calls: usize,
        thread_index: usize,
    ) -> Result<CallBlock, CallError> {
        let items = self.list_cell_items(cell);
        let keys: Vec<&[u8]> = items.iter().map(|(key, _)| key.as_bytes()).collect();
        let thread_rate = self.rate.map(|rate| rate / self.threads as f64);
        let mut arrivals =
            thread_rate.map(|rate| Arrivals::new(rate, mix(self.seed ^ thread_index as u64)));
        let mut block = CallBlock::default();
        let started = Instant::now();
        for _ in 0..calls {
            // In an open loop a call that starts late is late from the time at which it was due.
            let lateness = arrivals.as_mut().map_or(Duration::ZERO, |arrivals| {
                let due_after = Duration::from_nanos(arrivals.due_ns());
                arrivals.advance();
                wait_until(started + due_after);
                started.elapsed().saturating_sub(due_after)
            });
            let (elapsed, wrong_values) =
                self.time_call(&items, &keys, matches!(cell, Cell::Bytes(_)))?;
            block.wrong_values += wrong_values;
            block.latencies_ns.push((lateness + elapsed).as_nanos() as u64);
        }
        Ok(block)
    }

    /// Calls from all threads at once until there is a connection for each. A call that finds no idle connection opens
    /// one, which must not happen in a call that is measured.
    fn open_connections(&self, cell: Cell) -> Result<(), CallError> {
        let items = self.list_cell_items(cell);
        let keys: Vec<&[u8]> = items.iter().map(|(key, _)| key.as_bytes()).collect();
        let wanted_count = self.threads.min(Options::default().connections_max);
        let started = Instant::now();
        let call_until_open = || -> Result<(), CallError> {
            loop {
                self.time_call(&items, &keys, matches!(cell, Cell::Bytes(_)))?;
                if self.connection_count() >= wanted_count || started.elapsed() > CONNECT_TIME_MAX {
                    return Ok(());
                }
            }
        };
        std::thread::scope(|scope| {
            let spawn = |_| scope.spawn(call_until_open);
            let handles: Vec<_> = (0..self.threads).map(spawn).collect();
            handles.into_iter().try_for_each(|handle| {
                let result = handle.join();
                result.map_err(|_| CallError::BadData("a thread ended early".to_owned()))?
            })
        })
    }

    fn connection_count(&self) -> usize {
        let servers = self.client.servers();
        let counts = servers.iter().map(|(_, server)| server.connection_counts());
        counts.map(|(open_count, _)| open_count).sum()
    }
}

/// Sleeps to just before `instant` and spins the rest: waking up takes longer than a fast call.
fn wait_until(instant: Instant) {
    const SPIN_TIME: Duration = Duration::from_millis(1);
    std::thread::sleep(instant.saturating_duration_since(Instant::now()).saturating_sub(SPIN_TIME));
    while Instant::now() < instant {
        std::hint::spin_loop();
    }
}

impl RustClient<'_> {
    pub(super) fn reconnect(&mut self, cell: Cell) -> Result<(), CallError> {
        self.client = self.target.new_client(true)?;
        self.open_connections(cell)
    }

    pub(super) fn fill(&mut self, cell: Cell) -> Result<bool, CallError> {
        for (key, body) in self.list_cell_items(cell) {
            let item = Item { key: to_wire_key(&key), flags: 0, body };
            let budget = new_call_budget();
            match self.client.store(StoreMode::Set, item, 0, false, &budget) {
                Ok(_) => {}
                Err(Error::TooLarge { .. }) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    pub(super) fn read(&mut self, cell: Cell, calls: usize) -> Result<CallBlock, CallError> {
        if self.threads == 1 {
            return self.measure_block_of_thread(cell, calls, 0);
        }
        let caller = &*self;
        std::thread::scope(|scope| {
            let calls_per_thread = calls.div_ceil(caller.threads);
            let handles: Vec<_> = (0..caller.threads)
                .map(|thread_index| {
                    scope.spawn(move || {
                        caller.measure_block_of_thread(cell, calls_per_thread, thread_index)
                    })
                })
                .collect();
            let mut merged_block = CallBlock::default();
            for handle in handles {
                let result = handle.join();
                let block =
                    result.map_err(|_| CallError::BadData("a thread ended early".to_owned()))??;
                merged_block.latencies_ns.extend(block.latencies_ns);
                merged_block.wrong_values += block.wrong_values;
            }
            Ok(merged_block)
        })
    }

    pub(super) fn clear(&mut self, cell: Cell) -> Result<(), CallError> {
        for (key, _) in self.list_cell_items(cell) {
            let budget = new_call_budget();
            self.client.delete(to_wire_key(&key), false, &budget)?;
        }
        Ok(())
    }

    pub(super) fn measure_parts(
        &mut self,
        bytes: usize,
        calls: usize,
    ) -> Result<GetTimes, CallError> {
        let total_part_ns = |client: &Client, part: CostPart| -> u64 {
            let call_classes = client.costs().by_size();
            call_classes
                .iter()
                .filter_map(|(_, _, call_class)| call_class.parts_ns.get(part as usize))
                .sum()
        };
        let wire_ns_before = total_part_ns(&self.client, CostPart::Wire);
        let meter_before = self.target.meter.read();
        let block = self.measure_block_of_thread(Cell::Bytes(bytes), calls, 0)?;
        let used_cpu = self.target.meter.read().since(&meter_before);
        let us_per_call = |ns: u64| ns as f64 / 1e3 / calls.max(1) as f64;
        let total_us = us_per_call(block.latencies_ns.iter().sum());
        let wire_ns = total_part_ns(&self.client, CostPart::Wire) - wire_ns_before;
        let wire_us = us_per_call(wire_ns).min(total_us);
        let is_server_cpu_visible = self.target.meter.workers() > 0;
        let server_us = is_server_cpu_visible
            .then(|| (used_cpu.server.cpu_s() * 1e6 / calls.max(1) as f64).min(wire_us));
        Ok(GetTimes {
            bytes,
            total_us,
            client_us: total_us - wire_us,
            deserialise_us: 0.0,
            decompress_us: 0.0,
            network_us: wire_us - server_us.unwrap_or(0.0),
            server_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use glasscache_server::{Address, Config, Listen};

    use super::*;
    use crate::access::Protocol;
    use crate::proc::Meter;

    #[test]
    fn each_thread_has_a_connection_when_reconnecting_is_done() {
        let listeners = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
        let config = Config { listeners, memory_bytes: 64 << 20, ..Config::default() };
        let server = glasscache_server::start(config).unwrap();
        let [Address::Tcp(address)] = server.addresses()[..] else { panic!("no TCP") };
        let target = Target::open_embedded(address, Meter::None, Protocol::Text).unwrap();
        let cell = Cell::Bytes(100);
        // The calls of an open loop come one after the other.
        for rate in [None, Some(1000.0)] {
            let settings =
                Settings { sizes: vec![100], threads: 4, rate, seed: 1, ..Settings::default() };
            let mut client = RustClient::new(&target, &settings).unwrap();
            client.fill(cell).unwrap();
            client.reconnect(cell).unwrap();
            assert_eq!(client.connection_count(), 4, "{rate:?}");
        }
        server.stop();
        server.join();
    }
}
