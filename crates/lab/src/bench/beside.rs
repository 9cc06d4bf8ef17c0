//! A reader beside trouble: how far its tail grows while the index doubles, memory is full, or megabytes fly.
//!
//! The reader keeps an open loop on its own connections and its own CPU; the trouble comes from a second
//! generator. Each side of each round gets a server of its own, for an index doubles only once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::paired::Spread;
use super::scenario::{Beside, Scenario};
use super::speed::{Figures, Listener, Measured, drive, fill};
use super::{Error, Sides};
use crate::load::{
    self, Batch, Fill, Mixed, Outcome, Pace, Picker, Plan, Size, Step, Values, Window, Work,
    key_text,
};
use crate::proc::Meter;
use crate::target::{Server, Spawn};

/// `-m` while the index grows: nothing is evicted.
const ROOMY_MIB: u64 = 1024;

/// `-m` while memory is full.
const TIGHT_MIB: u64 = 64;

/// New keys a second beside the reader.
const NEW_KEYS_PER_S: f64 = 100_000.0;

/// Megabyte requests a second, half of them sets.
const LARGE_PER_S: f64 = 400.0;

/// Keys of a megabyte.
const LARGE_KEYS: u64 = 100;

/// Connections of the trouble.
const CONNECTIONS: usize = 16;

/// Keys of the trouble start here, away from the reader's.
const FIRST_ID: u64 = 1 << 59;

/// Runs a scenario in which something happens beside the reader.
pub fn run(
    sides: &Sides,
    scenario: &Scenario,
    trouble: Beside,
    rounds: usize,
    listener: &mut Listener<'_>,
) -> Result<Figures, Error> {
    let memory_mib = memory_mib(trouble);
    let (mut measured, mut calm) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let ours = || {
            side(
                sides,
                &sides.ours(memory_mib),
                scenario,
                trouble,
                round as u64,
            )
        };
        let theirs = || {
            side(
                sides,
                &sides.theirs(memory_mib),
                scenario,
                trouble,
                round as u64,
            )
        };
        let (a, b) = if round % 2 == 0 {
            let a = ours()?;
            (a, theirs()?)
        } else {
            let b = theirs()?;
            (ours()?, b)
        };
        listener(&format!(
            "{}: round {} of {rounds}: p99 {:.0} us (calm {:.0}) against {:.0} us (calm {:.0})",
            scenario.title,
            round + 1,
            a.1.p99_us,
            a.0.p99_us,
            b.1.p99_us,
            b.0.p99_us,
        ));
        calm.push((a.1.p99_us / a.0.p99_us, b.1.p99_us / b.0.p99_us));
        measured.push((a.1, b.1));
    }
    let mut figures = Figures::new(scenario.clone(), measured);
    figures.p99_of_calm = Some((
        Spread::of(calm.iter().map(|c| c.0)),
        Spread::of(calm.iter().map(|c| c.1)),
    ));
    Ok(figures)
}

/// Measures the reader beside the trouble only, glasscache first in even rounds.
pub(super) fn pair(
    sides: &Sides,
    scenario: &Scenario,
    trouble: Beside,
    round: usize,
) -> Result<(Measured, Measured), Error> {
    let memory_mib = memory_mib(trouble);
    let measure = |spawn: Spawn| {
        let reader = Reader::start(sides, &spawn, scenario)?;
        reader.beside(trouble, round as u64)
    };
    if round.is_multiple_of(2) {
        let ours = measure(sides.ours(memory_mib))?;
        Ok((ours, measure(sides.theirs(memory_mib))?))
    } else {
        let theirs = measure(sides.theirs(memory_mib))?;
        Ok((measure(sides.ours(memory_mib))?, theirs))
    }
}

const fn memory_mib(trouble: Beside) -> u64 {
    match trouble {
        Beside::Full => TIGHT_MIB,
        Beside::Growth | Beside::Large => ROOMY_MIB,
    }
}

/// Measures the reader alone, then beside the trouble.
fn side(
    sides: &Sides,
    spawn: &Spawn,
    scenario: &Scenario,
    trouble: Beside,
    seed: u64,
) -> Result<(Measured, Measured), Error> {
    let reader = Reader::start(sides, spawn, scenario)?;
    let calm = reader.drive(seed)?;
    Ok((calm, reader.beside(trouble, seed)?))
}

/// A server of its own that holds the reader's keys.
struct Reader<'a> {
    sides: &'a Sides,
    server: Server,
    scenario: &'a Scenario,
    values: Values,
}

impl<'a> Reader<'a> {
    fn start(sides: &'a Sides, spawn: &Spawn, scenario: &'a Scenario) -> Result<Self, Error> {
        let server = spawn.start().map_err(Error::Start)?;
        let values = Values::new(scenario.size(), 1);
        let reader = Self {
            sides,
            server,
            scenario,
            values,
        };
        fill(
            &reader.own_sides(),
            &reader.server,
            scenario,
            &reader.values,
        )?;
        Ok(reader)
    }

    fn own_sides(&self) -> Sides {
        Sides {
            layout: self.sides.layout.reader(),
            ..self.sides.clone()
        }
    }

    fn drive(&self, seed: u64) -> Result<Measured, Error> {
        let how = (self.scenario.dialect, seed);
        drive(
            &self.own_sides(),
            &self.server,
            self.scenario,
            &self.values,
            how,
        )
    }

    fn beside(&self, trouble: Beside, seed: u64) -> Result<Measured, Error> {
        let maker = Maker::new(self.sides, &self.server, trouble, &self.values)?;
        let length = Duration::from_secs_f64(self.scenario.seconds * 1.15 + 0.1);
        let (beside, made) = std::thread::scope(|scope| {
            let running = scope.spawn(|| maker.run(length, seed));
            let beside = self.drive(seed + 100);
            maker.plan.stop.store(true, Ordering::Relaxed);
            (beside, running.join().unwrap_or(Err(load::Error::Closed)))
        });
        match made {
            Ok(()) | Err(load::Error::Stopped) => beside,
            Err(error) => Err(Error::load(self.server.name)(error)),
        }
    }
}

/// The second generator.
struct Maker {
    plan: Plan,
    trouble: Beside,
    values: Values,
}

impl Maker {
    fn new(sides: &Sides, server: &Server, trouble: Beside, small: &Values) -> Result<Self, Error> {
        let values = match trouble {
            Beside::Large => Values::new(Size::Fixed(1_000_000), 2),
            Beside::Growth | Beside::Full => small.clone(),
        };
        let plan = Plan {
            connections: CONNECTIONS,
            depth: 16,
            cpus: sides.pins(&sides.layout.trouble()),
            stop: Arc::default(),
            ..Plan::new(server.address)
        };
        // What must be there before: the megabytes to be read, or a full memory.
        let before = match trouble {
            Beside::Growth => 0,
            Beside::Full => 2 * (TIGHT_MIB << 20) / 100,
            Beside::Large => LARGE_KEYS,
        };
        let works = Fill::over(&(FIRST_ID..FIRST_ID + before), &values, 1);
        load::run(&plan, works, &Meter::None).map_err(Error::load(server.name))?;
        Ok(Self {
            plan,
            trouble,
            values,
        })
    }

    fn run(&self, length: Duration, seed: u64) -> Result<(), load::Error> {
        let window = Window::Timed {
            warm_up: Duration::ZERO,
            measure: length,
        };
        let plan = Plan {
            window,
            depth: 1,
            seed,
            ..self.plan.clone()
        };
        if self.trouble == Beside::Large {
            let plan = Plan {
                pace: Pace::Open(LARGE_PER_S),
                ..plan
            };
            let picker = Picker::new(LARGE_KEYS, None);
            let work = Mixed::new((FIRST_ID, picker), self.values.clone(), (0.5, 1), seed);
            load::run(&plan, vec![work], &Meter::None)?;
        } else {
            let plan = Plan {
                pace: Pace::Open(NEW_KEYS_PER_S),
                ..plan
            };
            let first = FIRST_ID + (1 << 32);
            let work = NewKeys {
                next: first,
                values: self.values.clone(),
            };
            load::run(&plan, vec![work], &Meter::None)?;
        }
        Ok(())
    }
}

/// Sets of keys that were never seen before.
struct NewKeys {
    next: u64,
    values: Values,
}

impl Work for NewKeys {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> Step {
        self.next += 1;
        batch.set(self, self.next, 0);
        Step::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&key_text(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.values.of(id)
    }

    fn done(&mut self, _connection: usize, _id: u64, _outcome: Outcome) {}
}
