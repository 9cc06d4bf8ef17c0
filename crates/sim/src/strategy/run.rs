//! Replays one strategy over a prepared log: the loop whose speed bounds every search.

use std::ops::{ControlFlow, Range};

use glasscache_strategy::file::{LocalRule, Strategy};
use glasscache_strategy::policy::{AnyPolicy, Lru, LruBytes, Policy, S3Fifo};
use glasscache_strategy::rules::{Rules, World, settle};

use super::cost::{CostModel, round_half_up};
use super::draw::{Luck, Quantiles, luck};
use super::fixed::FixedSet;
use super::prepare::Prepared;
use super::tree::Tree;
use crate::trace::log::NONE;

/// What one request did under a strategy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deed {
    /// Time spent waiting for calls, in nanoseconds.
    pub added_ns: u64,
    /// Bytes fetched.
    pub bytes: u64,
    /// Calls made.
    pub calls: u32,
    /// Keys fetched.
    pub keys: u32,
    /// Keys fetched that were asked for.
    pub used_keys: u32,
}

/// How calls are priced.
#[derive(Debug, Clone, Copy)]
pub enum Pricing {
    /// Each call costs the median.
    Median,
    /// Each call draws from the measured distribution, where there is one.
    Drawn {
        /// Another seed, other luck.
        seed: u64,
        /// Whether the calls of a request share their luck.
        luck: Luck,
    },
}

/// Replays the requests before `end` (file order) and returns what each did.
pub fn run(
    prepared: &Prepared<'_>,
    cost: &CostModel,
    strategy: &Strategy,
    fixed: &FixedSet,
    pricing: Pricing,
    end: usize,
) -> Vec<Deed> {
    let mut deeds = vec![Deed::default(); end];
    run_each(
        prepared,
        cost,
        strategy,
        fixed,
        pricing,
        0..end,
        |request, deed| {
            deeds[request] = deed;
            ControlFlow::Continue(())
        },
    );
    deeds
}

/// The same without keeping them: hands each request of `judged` and its deed over, process by process,
/// until it is told to stop.
///
/// Requests before `judged` are replayed for what they leave in the local cache, if there is one.
pub fn run_each(
    prepared: &Prepared<'_>,
    cost: &CostModel,
    strategy: &Strategy,
    fixed: &FixedSet,
    pricing: Pricing,
    judged: Range<usize>,
    each: impl FnMut(usize, Deed) -> ControlFlow<()>,
) {
    let prices = Prices::new(prepared, cost, pricing);
    let replay = Replay {
        prepared,
        prices: &prices,
        rules: strategy.rules(),
        fixed,
        judged,
    };
    // Ends early only because `each` said so.
    let _ = match strategy.local {
        LocalRule::Nothing => replay.all(&mut AnyPolicy::Nothing, false, each),
        LocalRule::Lru(n) => replay.all(&mut Lru::new(n), true, each),
        LocalRule::LruBytes(bytes) => replay.all(&mut LruBytes::new(bytes), true, each),
        LocalRule::S3Fifo(n) => replay.all(&mut S3Fifo::new(n), true, each),
    };
}

struct Replay<'a> {
    prepared: &'a Prepared<'a>,
    prices: &'a Prices<'a>,
    rules: Rules,
    fixed: &'a FixedSet,
    judged: Range<usize>,
}

impl Replay<'_> {
    fn all<P: Policy>(
        &self,
        local: &mut P,
        has_past: bool,
        mut each: impl FnMut(usize, Deed) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut world = Replica {
            fixed: self.fixed,
            local,
            tree: &self.prepared.tree,
            sizes: &self.prepared.items.sizes,
            held_by: vec![NONE; self.prepared.items.len()],
            request: 0,
        };
        let mut list = Vec::new();
        let before = |end: usize| move |&request: &u32| (request as usize) < end;
        for requests in &self.prepared.by_instance {
            world.local.clear();
            let (start, end) = (
                requests.partition_point(before(self.judged.start)),
                requests.partition_point(before(self.judged.end)),
            );
            if has_past {
                for &request in &requests[..start] {
                    self.one(request, &mut world, &mut list);
                }
            }
            for &request in &requests[start..end] {
                each(request as usize, self.one(request, &mut world, &mut list))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn one<P: Policy>(
        &self,
        request: u32,
        world: &mut Replica<'_, P>,
        list: &mut Vec<u32>,
    ) -> Deed {
        world.request = request;
        let mut deed = Deed::default();
        let page = self.prepared.page[request as usize];
        if page != NONE {
            self.rules.open(world, &page, list);
            self.fetch(page, world, list, &mut deed);
        }
        for &item in self.prepared.items_of(request as usize) {
            let found = self.rules.ask(world, &item, list);
            deed.used_keys += u32::from(found.is_used_key());
            self.fetch(item, world, list, &mut deed);
        }
        deed
    }

    fn fetch<P: Policy>(
        &self,
        cause: u32,
        world: &mut Replica<'_, P>,
        list: &[u32],
        deed: &mut Deed,
    ) {
        if list.is_empty() {
            return;
        }
        let bytes = list
            .iter()
            .map(|&item| u64::from(world.sizes[item as usize]))
            .sum();
        deed.calls += 1;
        deed.keys += list.len() as u32;
        deed.bytes += bytes;
        deed.added_ns += self.prices.call_ns(world.request, cause, list, bytes);
        settle(world, list);
    }
}

/// The replayed process: arrays by item number where a client has maps by key.
struct Replica<'a, P> {
    fixed: &'a FixedSet,
    local: &'a mut P,
    tree: &'a Tree,
    sizes: &'a [u32],
    /// The last request that held each item.
    held_by: Vec<u32>,
    request: u32,
}

impl<P: Policy> World for Replica<'_, P> {
    type Key = u32;

    /// Repeats were dropped when the log was prepared.
    fn see(&mut self, _item: &u32) -> bool {
        true
    }

    fn is_fixed(&self, item: &u32) -> bool {
        self.fixed.contains(*item)
    }

    fn is_held(&self, item: &u32) -> bool {
        self.held_by[*item as usize] == self.request
    }

    fn hold(&mut self, item: &u32) {
        self.held_by[*item as usize] = self.request;
    }

    fn local_get(&mut self, item: &u32) -> bool {
        self.local.get(*item)
    }

    fn local_contains(&self, item: &u32) -> bool {
        self.local.contains(*item)
    }

    fn local_insert(&mut self, item: &u32) {
        self.local
            .insert(*item, self.sizes[*item as usize], &mut |_, _| {});
    }

    fn children(&self, item: &u32, list: &mut Vec<u32>) {
        list.extend_from_slice(self.tree.children(*item));
    }
}

/// Prices of calls; single gets of the median are looked up, for they are most of all calls.
struct Prices<'a> {
    cost: &'a CostModel,
    single_ns: Vec<u64>,
    drawn: Option<(&'a Quantiles, u64, Luck)>,
    origin: &'a [u32],
}

impl<'a> Prices<'a> {
    fn new(prepared: &'a Prepared<'_>, cost: &'a CostModel, pricing: Pricing) -> Self {
        let sizes = &prepared.items.sizes;
        let drawn = match pricing {
            Pricing::Median => None,
            Pricing::Drawn { seed, luck } => {
                cost.quantiles().map(|quantiles| (quantiles, seed, luck))
            }
        };
        let single_ns = sizes
            .iter()
            .map(|&size| cost.call_ns(1, u64::from(size)))
            .collect();
        Self {
            cost,
            single_ns,
            drawn,
            origin: &prepared.origin,
        }
    }

    fn call_ns(&self, request: u32, cause: u32, list: &[u32], bytes: u64) -> u64 {
        if let Some((quantiles, seed, kind)) = self.drawn {
            let u = luck(seed, u64::from(self.origin[request as usize]), cause, kind);
            return round_half_up(
                quantiles.single_ns(bytes, u) + self.cost.extra_keys_ns(list.len() as u64),
            );
        }
        match list {
            [item] => self.single_ns[*item as usize],
            _ => self.cost.call_ns(list.len() as u64, bytes),
        }
    }
}
