//! The rules on the figures of prepared servers: the right finding is first, and a healthy server has none.

use std::fmt::Write as _;

use crate::connections::Connections;
use crate::counters::Counters;
use crate::curve::{Curve, CurvePoint};
use crate::key_sample::KeySample;
use crate::{Figures, HotKey, KINDS, Machine, find};

const NOW_S: u64 = 1_760_000_000;

/// 1,000 keys: the time until each expires (0 never), its size, and whether it was read.
fn sample_of(item: impl Fn(u64) -> (u64, u64, bool)) -> KeySample {
    let mut sample = KeySample::default();
    for index in 0..1000 {
        let (ttl_s, bytes, was_read) = item(index);
        let expires = if ttl_s == 0 { "-1".to_owned() } else { (NOW_S + ttl_s).to_string() };
        let fetch = if was_read { "yes" } else { "no" };
        let mut line = String::new();
        let _ = write!(line, "key=k{index} exp={expires} la=1 fetch={fetch} cls=1 size={bytes}");
        sample.push_line(&line);
    }
    sample
}

fn healthy() -> Figures {
    let now = Counters {
        uptime_s: 86_400,
        time_unix_s: NOW_S,
        gets: 1_000_000,
        hits: 950_000,
        sets: 60_000,
        items: 50_000,
        bytes: 50_000_000,
        limit_bytes: 67_108_864,
        connections: 40,
        connections_max: 1024,
        ..Counters::default()
    };
    let recent = Counters { gets: 1000, hits: 950, sets: 60, ..now.clone() };
    Figures {
        now,
        recent: Some(recent),
        seconds: 5.0,
        connections: Some(Connections::of([
            ("9:addr", "tcp:127.0.0.1:1"),
            ("9:state", "conn_read"),
            ("9:secs_since_last_cmd", "1"),
        ])),
        hot_keys: vec![HotKey { key: "popular".into(), requests: 500, share: 0.1 }],
        key_sample: Some(sample_of(|index| (1800 + 3 * index, 1000, index % 5 > 0))),
        machine: Some(Machine { resident_bytes: 70_000_000, ..Machine::default() }),
        ..Figures::default()
    }
}

fn ids(figures: &Figures) -> Vec<&'static str> {
    find(figures).iter().map(|finding| finding.id).collect()
}

fn with(change: impl FnOnce(&mut Figures)) -> Figures {
    let mut figures = healthy();
    change(&mut figures);
    figures
}

fn curve(miss_ratios: [f64; 4]) -> Curve {
    let sizes = [33_554_432, 67_108_864, 83_886_080, 134_217_728];
    let to_point = |(memory_bytes, miss_ratio): (u64, f64)| CurvePoint {
        memory_bytes,
        miss_ratio,
        low: miss_ratio - 0.005,
        high: miss_ratio + 0.005,
    };
    Curve { points: sizes.into_iter().zip(miss_ratios).map(to_point).collect() }
}

#[test]
fn nothing_is_invented_on_a_healthy_or_an_unknown_server() {
    assert_eq!(ids(&healthy()), [""; 0]);
    assert_eq!(ids(&Figures::default()), [""; 0]);
    assert_eq!(
        ids(&with(|figures| figures.curve = Some(curve([0.09, 0.05, 0.049, 0.048])))),
        [""; 0]
    );
}

#[test]
fn evictions_with_misses_are_too_small_unless_the_curve_is_flat() {
    let evicting = with(|figures| {
        let recent = figures.recent.as_mut().unwrap();
        (recent.hits, recent.sets, recent.evictions) = (600, 400, 380);
        figures.eviction_age_s = Some(12);
    });
    assert_eq!(ids(&evicting), ["too_small"]);
    let finding = &find(&evicting)[0];
    assert_eq!(
        finding.sentence,
        "67.1 MB evicts 76.0 items/s after 12 s without use and misses 40.0 % of the gets."
    );
    assert_eq!((finding.value, finding.setting.as_str()), (76.0, "-m 128"));
    assert_eq!(finding.gain, "avoids at most 76.0 of 80.0 misses/s");
    let flat = Figures { curve: Some(curve([0.41, 0.4, 0.4, 0.399])), ..evicting.clone() };
    assert_eq!(ids(&flat), [""; 0]);
    let mut uncertain = flat.clone();
    uncertain.curve.as_mut().unwrap().points[3].low = 0.3;
    assert_eq!(find(&uncertain)[0].setting, "-m 128", "the counters decide");
    let steep = Figures { curve: Some(curve([0.6, 0.4, 0.3, 0.25])), ..evicting };
    let finding = &find(&steep)[0];
    assert_eq!((finding.id, finding.setting.as_str()), ("too_small", "-m 80"));
    assert_eq!(
        finding.sentence,
        "67.1 MB misses 40.0 % of the gets; by its own curve 16.8 MB more (+25 %) miss 30.0 %."
    );
    assert_eq!(finding.gain, "avoids 20.0 of 80.0 misses/s (25 % \u{b1} 1)");
}

#[test]
fn memory_that_was_never_filled_is_too_large_unless_it_fills_now() {
    let never_filled = with(|figures| {
        figures.now.limit_bytes = 1 << 30;
        figures.recent.as_mut().unwrap().sets = 10;
    });
    assert_eq!(ids(&never_filled), ["too_large"]);
    assert_eq!(find(&never_filled)[0].setting, "-m 72");
    let filling = with(|figures| {
        figures.now.limit_bytes = 1 << 30;
        figures.recent.as_mut().unwrap().sets = 100;
    });
    assert_eq!(ids(&filling), [""; 0]);
    let small = with(|figures| figures.now.bytes = 1_000_000);
    assert_eq!(ids(&small), [""; 0]);
    let flat_curve = with(|figures| {
        figures.now.limit_bytes = 1 << 30;
        figures.now.evictions = 1;
        let mut flat = curve([0.05, 0.05, 0.05, 0.05]);
        flat.points.push(CurvePoint { memory_bytes: 1 << 30, ..flat.points[0] });
        figures.curve = Some(flat);
    });
    assert_eq!(find(&flat_curve)[0].setting, "-m 32");
}

#[test]
fn one_hot_key_and_huge_values() {
    let hot = with(|figures| figures.hot_keys[0].share = 0.6);
    assert_eq!(ids(&hot), ["one_hot_key"]);
    let chance = with(|figures| {
        figures.hot_keys[0] = HotKey { key: "k".into(), requests: 3, share: 1.0 };
    });
    assert_eq!(ids(&chance), [""; 0]);
    let huge = with(|figures| {
        figures.key_sample = Some(sample_of(|index| {
            (1800 + 3 * index, if index < 40 { 500_000 } else { 1000 }, true)
        }));
    });
    assert_eq!(ids(&huge), ["huge_values"]);
    let refused = with(|figures| figures.now.values_too_large = 3);
    assert_eq!(ids(&refused), ["values_refused"]);
}

#[test]
fn ttls_that_are_missing_or_alike() {
    let without = with(|figures| figures.key_sample = Some(sample_of(|_| (0, 1000, true))));
    assert_eq!(ids(&without), ["no_ttls"]);
    let alike = with(|figures| {
        figures.key_sample = Some(sample_of(|index| (3600 - index / 300, 1000, true)));
    });
    assert_eq!(ids(&alike), ["ttls_alike"]);
    let short = with(|figures| figures.key_sample = Some(sample_of(|_| (1, 1000, true))));
    assert_eq!(ids(&short), [""; 0]);
}

#[test]
fn a_flood_is_named_instead_of_a_small_memory() {
    let flood = with(|figures| {
        let recent = figures.recent.as_mut().unwrap();
        (recent.sets, recent.evictions, recent.evicted_unread) = (5000, 4000, 3900);
        recent.hits = 700;
    });
    assert_eq!(ids(&flood), ["never_read_sets"]);
    let by_sample = with(|figures| {
        figures.recent.as_mut().unwrap().sets = 5000;
        figures.key_sample = Some(sample_of(|index| (1800 + 3 * index, 1000, index < 100)));
    });
    assert_eq!(ids(&by_sample), ["never_read_sets"]);
}

#[test]
fn connections_that_are_refused_idle_or_used_up() {
    let refused = with(|figures| figures.now.connections_refused = 12);
    assert_eq!(ids(&refused), ["refused_connections"]);
    let full = with(|figures| {
        (figures.now.connections, figures.now.connections_refused) = (1020, 12);
    });
    assert_eq!(ids(&full), ["connections_full", "refused_connections"]);
    let unreachable = Figures { refuses_connections: true, ..Figures::default() };
    assert_eq!(ids(&unreachable), ["connections_full"]);
    let idle_rows: Vec<(String, &str)> = (0..200)
        .flat_map(|id| {
            let fields = [
                ("addr", "tcp:127.0.0.1:1"),
                ("state", "conn_read"),
                ("secs_since_last_cmd", "90"),
            ];
            fields.map(|(field, value)| (format!("{id}:{field}"), value))
        })
        .collect();
    let idle = with(|figures| {
        figures.connections =
            Some(Connections::of(idle_rows.iter().map(|(name, value)| (name.as_str(), *value))));
    });
    assert_eq!(ids(&idle), ["dead_client_pool"]);
}

#[test]
fn swap_and_values_without_memory() {
    let swapped = with(|figures| {
        figures.machine = Some(Machine::of_status("VmRSS: 30000 kB\nVmSwap: 30000 kB\n"));
    });
    assert_eq!(ids(&swapped), ["swap"]);
    let without_memory = with(|figures| figures.now.values_without_memory = 2);
    assert_eq!(ids(&without_memory), ["no_memory"]);
}

#[test]
fn each_finding_is_of_the_kind_that_its_rule_has_in_the_table() {
    let everything = with(|figures| {
        figures.refuses_connections = true;
        figures.now.connections_refused = 1;
        figures.now.values_without_memory = 1;
        figures.now.values_too_large = 1;
        figures.machine = Some(Machine::of_status("VmSwap: 30000 kB"));
    });
    let order = |id: &str| KINDS.iter().position(|kind| kind.id == id).unwrap();
    let orders: Vec<usize> = ids(&everything).into_iter().map(order).collect();
    assert_eq!(orders, [0, 1, 2, 3, 7]);
}
