//! Draws a plan from a seed.

use glasscache_client::Protocol;

use crate::plan::{
    ADDITIONS_MAX, COUNTER_KEYS, Call, Driver, InjectedFault, Key, Micros, Misbehaviour,
    NetworkPlan, Operation, Plan, Prefix, ProcessPlan, Proxy, ServerPlan, TaskStep, Ttl,
    VALUE_KEYS, ValueWrite, is_base64,
};
use crate::random::Random;

/// Calls of a plan, at least.
const CALLS_MIN: u64 = 200;
/// Calls of a plan, at most.
const CALLS_MAX: u64 = 260;

/// In every n-th world clients have to log in, at servers without a proxy.
const LOGIN_EVERY: u64 = 8;

/// In every n-th world clients use the binary protocol.
const BINARY_EVERY: u64 = 5;

/// Of this many worlds, two have calls that remove what begins with a prefix, and two have servers with a memory file,
/// which stop cleanly where they would have been killed; one world has both.
const PREFIX_AND_FILE_CYCLE: u64 = 6;
/// In such a world every n-th call removes what begins with a prefix.
const PREFIX_CALLS_EVERY: u32 = 31;

/// In every n-th world a server sends refusals without end, after one request in 1, 5 or 25.
const FLOOD_EVERY: u64 = 11;
const FLOOD_AFTER_ONE_REQUEST_IN: [u32; 3] = [1, 5, 25];

/// A millisecond.
const MILLISECOND: Micros = 1000;

/// The plan of a seed: at least two servers, 200 calls and a fault.
pub fn generate_plan(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let mut servers: Vec<ServerPlan> =
        (0..random.between(2, 3)).map(|_| draw_server(&mut random)).collect();
    let mut processes: Vec<ProcessPlan> =
        (0..random.between(1, 2)).map(|_| draw_process(&mut random)).collect();
    let network = NetworkPlan {
        latency_min: random.pick(&[20, 50, 200]),
        latency_max: random.pick(&[200, 500, 3000, 20 * MILLISECOND]),
        cut_percent: random.pick(&[0, 10, 50, 90]),
        receive_window_bytes: random.pick(&[2 << 10, 16 << 10, 256 << 10]),
    };
    let counts = Counts { server_count: servers.len(), process_count: processes.len() };
    let mut tasks = draw_tasks(&mut random, &counts);
    // Drawn from the seed itself, so that the plans of kept seeds stay what they were.
    if seed % LOGIN_EVERY == 3 {
        let unproxied_servers = servers.iter_mut().filter(|server| server.proxy == Proxy::None);
        unproxied_servers.for_each(|server| server.requires_login = true);
    }
    if seed % BINARY_EVERY == 1 {
        for process in &mut processes {
            process.protocol = Protocol::Binary;
        }
    }
    if matches!(seed % PREFIX_AND_FILE_CYCLE, 4 | 5) {
        for server in &mut servers {
            server.has_memory_file = true;
        }
        make_restarts_clean(&mut tasks);
    }
    if matches!(seed % PREFIX_AND_FILE_CYCLE, 3 | 4) {
        replace_calls_by_prefix_flushes(&mut tasks, counts.server_count);
    }
    if seed % FLOOD_EVERY == 10 {
        flood_refusals(&mut tasks, seed / FLOOD_EVERY, counts.server_count);
    }
    Plan { seed, servers, processes, tasks, network, sabotage: None }
}

/// Has servers stop cleanly where they were to lose their items, but for those that are gone for a while.
fn make_restarts_clean(tasks: &mut [Vec<TaskStep>]) {
    for step in tasks.iter_mut().flatten() {
        if let TaskStep::Fault(_, fault) = step
            && let InjectedFault::Restart { server, is_reported } = *fault
        {
            *fault = InjectedFault::CleanRestart { server, is_reported };
        }
    }
}

/// Has some calls remove what begins with a prefix, in place of what they did.
fn replace_calls_by_prefix_flushes(tasks: &mut [Vec<TaskStep>], server_count: usize) {
    for step in tasks.iter_mut().flatten() {
        let TaskStep::Call(call) = step else { continue };
        if call.serial % PREFIX_CALLS_EVERY != 7 {
            continue;
        }
        let ordinal = call.serial / PREFIX_CALLS_EVERY;
        let whole_key = (ordinal % u32::from(VALUE_KEYS)) as Key;
        let prefix = match ordinal % 4 {
            0 => Prefix::Counters,
            1 if !is_base64(whole_key) => Prefix::Whole(whole_key),
            _ => Prefix::Values,
        };
        call.operation = Operation::FlushPrefix(ordinal as usize % server_count, prefix);
    }
}

/// Has a server begin to send refusals without end after a quarter of a task's steps; `ordinal` chooses among servers
/// and tasks.
fn flood_refusals(tasks: &mut [Vec<TaskStep>], ordinal: u64, server_count: usize) {
    let one_in = FLOOD_AFTER_ONE_REQUEST_IN[ordinal as usize % FLOOD_AFTER_ONE_REQUEST_IN.len()];
    let server = ordinal as usize % server_count;
    let task_index = ordinal as usize % tasks.len();
    let task = &mut tasks[task_index];
    let fault = InjectedFault::Misbehave { server, misbehaviour: Misbehaviour::Flood, one_in };
    task.insert(task.len() / 4, TaskStep::Fault(0, fault));
}

struct Counts {
    server_count: usize,
    process_count: usize,
}

fn draw_server(random: &mut Random) -> ServerPlan {
    let is_small = random.chance(25);
    ServerPlan {
        memory_bytes: if is_small { 1 << 20 } else { 4 << 20 },
        evict: !is_small || random.chance(50),
        item_bytes_max: if random.chance(25) { 16 << 10 } else { 512 << 10 },
        workers: random.between(1, 2) as usize,
        proxy: match random.below(20) {
            0 => Proxy::RefusesMeta,
            1 => Proxy::ClosesOnMeta,
            _ => Proxy::None,
        },
        requires_login: false,
        has_memory_file: false,
    }
}

fn draw_process(random: &mut Random) -> ProcessPlan {
    ProcessPlan {
        driver: if random.chance(50) {
            Driver::Shared
        } else {
            Driver::Pooled(random.between(1, 4) as usize)
        },
        value_bytes_max: if random.chance(10) { 8 << 10 } else { 64 << 20 },
        protocol: Protocol::Detected,
    }
}

fn draw_tasks(random: &mut Random, counts: &Counts) -> Vec<Vec<TaskStep>> {
    let task_count = random.pick(&[1, 1, 2, 3, 5]).max(counts.process_count);
    let mut tasks = vec![Vec::new(); task_count];
    let call_count = random.between(CALLS_MIN, CALLS_MAX) as u32;
    let fault_count = random.between(1, 10);
    let mut mix = CallMix {
        noreply_percent: random.pick(&[5, 25, 60]),
        large_percent: random.pick(&[0, 3, 10]),
        cancel_percent: random.pick(&[0, 0, 3]),
        short_deadline_percent: random.pick(&[0, 5, 30]),
        key_count: random.pick(&[2, 5, VALUE_KEYS]),
        additions_by_counter: vec![0; usize::from(COUNTER_KEYS)],
        server_count: counts.server_count,
    };
    for serial in 0..call_count {
        let task = &mut tasks[random.below(task_count as u64) as usize];
        if random.chance(20) {
            task.push(TaskStep::Sleep(random.pick(&[100, 2 * MILLISECOND, 30 * MILLISECOND])));
        }
        task.push(TaskStep::Call(mix.draw_call(random, serial)));
    }
    // A server that misbehaves makes the other checks weaker, so it is rare.
    let has_misbehaviour = random.chance(15);
    for fault_index in 0..fault_count {
        let fault = match fault_index {
            0 if has_misbehaviour => draw_misbehaviour(random, counts),
            _ => draw_fault(random, counts),
        };
        let task = &mut tasks[random.below(task_count as u64) as usize];
        let step_index = random.below(task.len() as u64 + 1) as usize;
        task.insert(step_index, TaskStep::Fault(random.below(2 * MILLISECOND), fault));
    }
    tasks
}

struct CallMix {
    noreply_percent: u64,
    large_percent: u64,
    cancel_percent: u64,
    short_deadline_percent: u64,
    key_count: Key,
    additions_by_counter: Vec<u8>,
    server_count: usize,
}

impl CallMix {
    fn draw_call(&mut self, random: &mut Random, serial: u32) -> Call {
        let has_short_deadline = random.chance(self.short_deadline_percent);
        Call {
            serial,
            operation: self.draw_operation(random),
            timeout: if has_short_deadline {
                random.pick(&[MILLISECOND, 5 * MILLISECOND, 20 * MILLISECOND])
            } else {
                random.pick(&[100 * MILLISECOND, 250 * MILLISECOND, 1000 * MILLISECOND])
            },
            cancel_after: random.chance(self.cancel_percent).then(|| random.below(3 * MILLISECOND)),
        }
    }

    fn draw_key(&self, random: &mut Random) -> Key {
        random.below(u64::from(self.key_count)) as Key
    }

    fn draw_keys(&self, random: &mut Random) -> Vec<Key> {
        let mut keys: Vec<Key> = (0..random.between(1, 8)).map(|_| self.draw_key(random)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn draw_ttl(random: &mut Random) -> Ttl {
        match random.below(10) {
            0 => Ttl::Seconds(random.between(1, 3) as u32),
            1 => Ttl::Seconds(1000),
            2 => Ttl::Absolute(1000),
            _ => Ttl::Never,
        }
    }

    fn draw_write(&self, random: &mut Random) -> ValueWrite {
        let value_bytes = if random.chance(self.large_percent) {
            random.pick(&[5 << 10, 9 << 10, 20 << 10, 70 << 10])
        } else {
            random.between(24, 300)
        };
        ValueWrite {
            value_bytes: value_bytes as u32,
            ttl: Self::draw_ttl(random),
            noreply: random.chance(self.noreply_percent),
        }
    }

    fn draw_operation(&mut self, random: &mut Random) -> Operation {
        let key = self.draw_key(random);
        let noreply = random.chance(self.noreply_percent);
        match random.below(100) {
            0..25 => Operation::Get(key),
            25..33 => Operation::Gets(key),
            33..37 => Operation::GetAndTouch(key, Self::draw_ttl(random)),
            37..57 => Operation::Set(key, self.draw_write(random)),
            57..62 => Operation::Add(key, self.draw_write(random)),
            62..68 => Operation::Cas(key, self.draw_write(random)),
            68..74 => Operation::Delete { key, noreply },
            74..77 => Operation::Touch { key, ttl: Self::draw_ttl(random), noreply },
            77..86 => self.draw_addition(random, noreply),
            86..90 => {
                // A bulk read is one text line, in which no key is base64.
                let mut keys = self.draw_keys(random);
                keys.retain(|key| !is_base64(*key));
                keys.extend(random.chance(30).then_some(VALUE_KEYS));
                if keys.is_empty() {
                    return Operation::Get(key);
                }
                Operation::GetMany(keys)
            }
            90..95 => {
                let write = self.draw_write(random);
                Operation::SetMany(self.draw_keys(random), write)
            }
            95..97 => Operation::DeleteMany(self.draw_keys(random)),
            97..98 => Operation::Flush(random.below(self.server_count as u64) as usize),
            98..99 => Operation::Version(random.below(self.server_count as u64) as usize),
            _ => Operation::Get(VALUE_KEYS + random.below(u64::from(COUNTER_KEYS)) as Key),
        }
    }

    fn draw_addition(&mut self, random: &mut Random, noreply: bool) -> Operation {
        let counter_index = random.below(u64::from(COUNTER_KEYS)) as Key;
        let key = VALUE_KEYS + counter_index;
        let addition_count = &mut self.additions_by_counter[usize::from(counter_index)];
        if *addition_count == ADDITIONS_MAX {
            return Operation::Delete { key, noreply };
        }
        *addition_count += 1;
        Operation::Increment {
            key,
            addition: *addition_count - 1,
            creates_missing: !noreply && random.chance(70),
            noreply,
        }
    }
}

fn draw_fault(random: &mut Random, counts: &Counts) -> InjectedFault {
    let server = random.below(counts.server_count as u64) as usize;
    let process = random.below(counts.process_count as u64) as usize;
    let duration =
        random.pick(&[2 * MILLISECOND, 30 * MILLISECOND, 150 * MILLISECOND, 400 * MILLISECOND]);
    let cut_after_thousandths = random.below(1000) as u16;
    match random.below(22) {
        0..2 => InjectedFault::Reset(server),
        2 => InjectedFault::ResetToClient(server),
        3 => InjectedFault::ResetToServer(server),
        4..6 => InjectedFault::Close(server),
        6..8 => InjectedFault::Pause(server, duration),
        8..10 => InjectedFault::Unreachable(server, duration),
        10..12 => InjectedFault::Restart { server, is_reported: random.chance(50) },
        12 => InjectedFault::Down(server, duration),
        13..15 => InjectedFault::CutReply(server, cut_after_thousandths),
        15 => InjectedFault::KillInReply(server, cut_after_thousandths),
        16 => InjectedFault::CutRequest(server, cut_after_thousandths),
        17 => InjectedFault::Fill(server),
        18 => InjectedFault::ServerClock(server, random.pick(&[1, 5, 3600])),
        19 => InjectedFault::WallClock(server, random.pick(&[-5000, -2, 3, 5000])),
        20 => InjectedFault::Freeze { process, duration },
        _ => InjectedFault::Fork { process },
    }
}

fn draw_misbehaviour(random: &mut Random, counts: &Counts) -> InjectedFault {
    let server = random.below(counts.server_count as u64) as usize;
    let misbehaviour = random.pick(&Misbehaviour::REPLY_CHANGES);
    InjectedFault::Misbehave { server, misbehaviour, one_in: random.pick(&[1, 3, 10]) }
}
