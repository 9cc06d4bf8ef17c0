//! A second simulator, written line by line from docs/reference/formats.md: slow, simple, and sharing
//! only the log reader with the first.

mod local;

use std::collections::{HashMap, HashSet};

use glasscache_sim::trace::log::{NONE, RequestLog};

use local::NaiveLocalCache;

/// A latency table as written, in microseconds.
pub(crate) struct Table {
    pub(crate) single: Vec<(f64, f64)>,
    pub(crate) batch: Vec<(f64, f64)>,
}

impl Table {
    fn single(&self, bytes: u64) -> f64 {
        let s = if bytes < 1 { 1.0 } else { bytes as f64 };
        let (last_s, last_t) = *self.single.last().unwrap();
        if s <= self.single[0].0 {
            return self.single[0].1;
        }
        if s > last_s {
            return last_t * s / last_s;
        }
        for pair in self.single.windows(2) {
            let ((s0, t0), (s1, t1)) = (pair[0], pair[1]);
            if s0 < s && s <= s1 {
                return t0 + (t1 - t0) * (s.log10() - s0.log10()) / (s1.log10() - s0.log10());
            }
        }
        unreachable!("a size lies below, between or above the knots")
    }

    fn batch(&self, keys: usize) -> f64 {
        let n = keys as f64;
        if n <= self.batch[0].0 || self.batch.len() == 1 {
            return self.batch[0].1;
        }
        let mut segment = (self.batch[0], self.batch[1]);
        for pair in self.batch.windows(2) {
            segment = (pair[0], pair[1]);
            if n <= pair[1].0 {
                break;
            }
        }
        let ((n0, t0), (n1, t1)) = segment;
        t0 + (t1 - t0) * (n - n0) / (n1 - n0)
    }

    pub(crate) fn cost_ns(&self, keys: usize, bytes: u64) -> u64 {
        let us = self.single(bytes) + self.batch(keys) - self.batch(1);
        (us * 1000.0 + 0.5).floor() as u64
    }
}

/// What one request did: added ns, calls, keys, bytes, used keys.
pub(crate) type NaiveStats = (u64, u32, u32, u64, u32);

struct State<'a> {
    log: &'a RequestLog,
    table: &'a Table,
    fixed: HashSet<u32>,
    held: HashSet<u32>,
    stats: NaiveStats,
}

impl State<'_> {
    fn fetch(&mut self, list: &[u32], local: &mut NaiveLocalCache) {
        let rest: Vec<u32> = list
            .iter()
            .copied()
            .filter(|x| !self.fixed.contains(x) && !self.held.contains(x) && !local.contains(*x))
            .collect();
        if rest.is_empty() {
            return;
        }
        let bytes = rest
            .iter()
            .map(|&x| u64::from(self.log.items.sizes[x as usize]))
            .sum();
        self.stats.0 += self.table.cost_ns(rest.len(), bytes);
        self.stats.1 += 1;
        self.stats.2 += rest.len() as u32;
        self.stats.3 += bytes;
        for x in rest {
            self.held.insert(x);
            local.insert(x, self.log.items.sizes[x as usize]);
        }
    }

    fn children(&self, x: u32) -> Vec<u32> {
        let parents = &self.log.items.parents;
        (0..parents.len() as u32)
            .filter(|&y| parents[y as usize] == x)
            .collect()
    }
}

/// Simulates a strategy, request by request in file order.
pub(crate) fn simulate(
    log: &RequestLog,
    table: &Table,
    notation: &str,
    children: &[Vec<u32>],
) -> Vec<NaiveStats> {
    let terms: Vec<&str> = notation.split('+').collect();
    let subtree: Option<usize> = terms
        .iter()
        .find_map(|p| p.strip_prefix("subtree:"))
        .map(|d| d.parse().unwrap());
    let (is_always, is_children) = (
        terms.contains(&"children-always"),
        terms.contains(&"children"),
    );
    let mut locals: HashMap<u16, NaiveLocalCache> = HashMap::new();
    let mut state = State {
        log,
        table,
        fixed: fixed_set(log, table, &terms),
        held: HashSet::new(),
        stats: NaiveStats::default(),
    };
    let mut request_stats = vec![];
    for r in 0..log.requests.len() {
        let local = locals.entry(log.requests.instance[r]).or_insert_with(|| {
            terms
                .iter()
                .map(|p| NaiveLocalCache::new(p))
                .find(|l| !matches!(l, NaiveLocalCache::None))
                .unwrap_or(NaiveLocalCache::None)
        });
        state.held.clear();
        state.stats = NaiveStats::default();
        let mut seen = HashSet::new();
        let page = log.requests.page[r];
        if let Some(depth) = subtree
            && page != NONE
            && !children[page as usize].is_empty()
        {
            let (mut list, mut level) = (vec![page], vec![page]);
            for _ in 0..depth {
                let mut next: Vec<u32> = level
                    .iter()
                    .flat_map(|&x| children[x as usize].clone())
                    .collect();
                next.sort_unstable();
                list.extend(&next);
                level = next;
            }
            state.fetch(&list, local);
        }
        for &x in log.requests.items_of(r) {
            if !seen.insert(x) {
                continue;
            }
            let mut at_hand = true;
            if !state.fixed.contains(&x) {
                let had = local.look_up(x);
                if state.held.contains(&x) {
                    state.stats.4 += 1;
                } else if had {
                    state.held.insert(x);
                } else {
                    at_hand = false;
                    state.stats.4 += 1;
                }
            }
            let family = || [vec![x], children[x as usize].clone()].concat();
            if is_always || (is_children && !at_hand) {
                state.fetch(&family(), local);
            } else if !at_hand {
                state.fetch(&[x], local);
            }
        }
        request_stats.push(state.stats);
    }
    request_stats
}

/// The children of every item, ascending.
pub(crate) fn all_children(log: &RequestLog) -> Vec<Vec<u32>> {
    let table = Table {
        single: vec![(1.0, 1.0)],
        batch: vec![(1.0, 1.0)],
    };
    let state = State {
        log,
        table: &table,
        fixed: HashSet::new(),
        held: HashSet::new(),
        stats: NaiveStats::default(),
    };
    let is_parent: HashSet<u32> = log.items.parents.iter().copied().collect();
    let of = |x| {
        if is_parent.contains(&x) {
            state.children(x)
        } else {
            vec![]
        }
    };
    (0..log.items.len() as u32).map(of).collect()
}

fn fixed_set(log: &RequestLog, table: &Table, terms: &[&str]) -> HashSet<u32> {
    let n = log.requests.len();
    for term in terms {
        let Some((name, number)) = term.split_once(':') else {
            continue;
        };
        let end = if name == "fixed-hindsight" { n } else { n / 2 };
        let mut uses = vec![0u64; log.items.len()];
        for r in 0..end {
            let once: HashSet<u32> = log.requests.items_of(r).iter().copied().collect();
            for x in once {
                uses[x as usize] += 1;
            }
        }
        let size = |x: u32| u64::from(log.items.sizes[x as usize]);
        let time = |x: u32| uses[x as usize] * table.cost_ns(1, size(x));
        let mut order: Vec<u32> = (0..log.items.len() as u32).collect();
        match name {
            "fixed" | "fixed-hindsight" => {
                order.sort_by_key(|&x| std::cmp::Reverse(uses[x as usize]));
            }
            "fixed-time" => order.sort_by_key(|&x| std::cmp::Reverse(time(x))),
            "fixed-bytes" => {
                let score = |x: u32| (u128::from(time(x)) << 40) / u128::from(size(x).max(1));
                order.sort_by_key(|&x| std::cmp::Reverse(score(x)));
                let mut room: u64 = number.parse().unwrap();
                let mut taken = HashSet::new();
                for x in order {
                    if size(x) <= room {
                        room -= size(x);
                        taken.insert(x);
                    }
                }
                return taken;
            }
            _ => continue,
        }
        return order.into_iter().take(number.parse().unwrap()).collect();
    }
    HashSet::new()
}
