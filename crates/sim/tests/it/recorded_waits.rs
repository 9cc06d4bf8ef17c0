//! Prices of calls from the waits that a log recorded.

use glasscache_sim::strategy::cost::{CostModel, round_half_up};
use glasscache_sim::strategy::recorded_waits::RecordedWaits;
use glasscache_sim::trace::log::{CallTimes, NONE, RequestLog, Requests};

/// A log of requests that each make these calls, which wait as long as `wait_us` says of their number.
fn log_of(calls: &[&[u32]], wait_us: impl Fn(usize, &[u32]) -> u32) -> RequestLog {
    let mut log = RequestLog::default();
    log.items.sizes = vec![100; 200];
    let mut requests = Requests { starts: vec![0], ..Requests::default() };
    for (index, keys) in calls.iter().enumerate() {
        requests.numbers.push(index as u64);
        requests.times_us.push(index as u64);
        requests.instances.push(0);
        requests.base_times_us.push(1000);
        requests.pages.push(NONE);
        requests.routes.push(NONE);
        requests.items.extend(keys.iter().flat_map(|&keys| 0..keys));
        requests.starts.push(requests.items.len());
        let times = CallTimes { wait_us: wait_us(index, keys) + 70, decode_us: 70, writes: 0 };
        requests.calls.push(index, Some((keys, times)));
    }
    log.requests = requests;
    log
}

fn table() -> CostModel {
    let (single_us, batch_us) = ([(1.0, 100.0), (1e6, 100.0)], [(1.0, 100.0), (101.0, 200.0)]);
    CostModel::new(&single_us, &batch_us).unwrap()
}

fn waits_of(log: &RequestLog) -> Option<RecordedWaits> {
    table().with_recorded_waits(log).recorded_waits().cloned()
}

const CALLS: [&[u32]; 4] = [&[1], &[1, 1, 1], &[50], &[1, 20]];

#[test]
fn calls_and_keys_beyond_the_table_get_their_prices() {
    let calls: Vec<&[u32]> = CALLS.into_iter().cycle().take(200).collect();
    // 100 us a call and 1 us a further key in the table; in the application 50 us a request, 110 and 3 us more.
    let wait_us = |keys: &u32| 210 + 4 * (keys - 1);
    let log = log_of(&calls, |_, keys| 50 + keys.iter().map(wait_us).sum::<u32>());
    let waits = waits_of(&log).unwrap();
    assert_eq!((waits.calls, waits.table_share), (350, 1.0));
    let prices = [waits.request_ns, waits.call_ns, waits.key_ns];
    assert_eq!(prices.map(round_half_up), [50_000, 110_000, 3000]);
    let cost = table().with_recorded_waits(&log);
    assert_eq!((cost.call_ns(1, 100), cost.call_ns(11, 1100)), (210_000, 250_000));
    assert_eq!(cost.first_call_ns(), 50_000);
    assert_eq!(round_half_up(cost.drawn_call_ns((11, 1100), false, 0.99).unwrap()), 250_000);
}

#[test]
fn no_price_is_below_0() {
    let calls: Vec<&[u32]> = CALLS.into_iter().cycle().take(200).collect();
    // The more calls or keys, the less each.
    let log = log_of(&calls, |_, keys| {
        keys.iter().map(|keys| 1000 + 100 / keys).sum::<u32>() - 200 * (keys.len() as u32 - 1)
    });
    let waits = waits_of(&log).unwrap();
    let prices = [waits.request_ns, waits.call_ns, waits.key_ns];
    assert!(prices.iter().all(|&price| price >= 0.0) && waits.key_ns == 0.0, "{prices:?}");
    let cost = table().with_recorded_waits(&log);
    let forecast_ns = |keys: &&[u32]| {
        let calls = keys.iter().map(|&keys| cost.call_ns(u64::from(keys), 100));
        cost.first_call_ns() + calls.sum::<u64>()
    };
    let waits_ns = (0..200).filter_map(|index| log.requests.calls.of(index));
    let waits_ns: u64 =
        waits_ns.map(|(_, times)| u64::from(times.wait_us - times.decode_us) * 1000).sum();
    let forecast_ns: u64 = calls.iter().map(forecast_ns).sum();
    assert!((forecast_ns as f64 / waits_ns as f64 - 1.0).abs() < 0.001, "{forecast_ns}");
}

#[test]
fn without_calls_of_several_keys_a_further_key_costs_what_it_does_in_the_table() {
    let calls: Vec<&[u32]> = CALLS[..2].iter().copied().cycle().take(100).collect();
    let log = log_of(&calls, |_, keys| 300 * keys.len() as u32);
    let waits = waits_of(&log).unwrap();
    assert_eq!([waits.call_ns, waits.request_ns].map(round_half_up), [200_000, 0]);
    let cost = table().with_recorded_waits(&log);
    assert_eq!(cost.call_ns(11, 1100), 310_000);
}

#[test]
fn calls_that_took_less_than_in_the_table_cost_a_part_of_it() {
    let calls: Vec<&[u32]> = CALLS.into_iter().cycle().take(100).collect();
    let log =
        log_of(&calls, |_, keys| keys.iter().map(|keys| u32::midpoint(100, keys - 1)).sum::<u32>());
    let cost = table().with_recorded_waits(&log);
    assert!((cost.call_ns(1, 100) as f64 / 50_000.0 - 1.0).abs() < 0.01);
    assert!((cost.call_ns(51, 100) as f64 / 75_000.0 - 1.0).abs() < 0.01);
}

#[test]
fn draws_have_the_spread_of_the_requests_and_their_mean() {
    let calls: Vec<&[u32]> = vec![&[1, 1]; 1000];
    let log = log_of(&calls, |index, _| if index % 10 == 0 { 2000 } else { 400 });
    let waits = waits_of(&log).unwrap();
    let drawn_ns = |quantile| {
        let cost = table().with_recorded_waits(&log);
        round_half_up(cost.drawn_call_ns((1, 100), true, quantile).unwrap())
    };
    assert_eq!([0.5, 0.95, 1.0].map(drawn_ns), [200_000, 1_000_000, 1_000_000]);
    let ratios = (0..1000).map(|part| waits.ratio_at((f64::from(part) + 0.5) / 1000.0));
    let mean = ratios.sum::<f64>() / 1000.0;
    assert!((mean - 1.0).abs() < 1e-6, "{mean}");
}

#[test]
fn few_calls_or_none_that_are_known_change_nothing() {
    let calls: Vec<&[u32]> = vec![&[1]; 99];
    let log = log_of(&calls, |_, _| 500);
    assert_eq!(waits_of(&log), None);
    assert_eq!(waits_of(&RequestLog::default()), None);
    let calls: Vec<&[u32]> = vec![&[1]; 200];
    let mut proxied_log = log_of(&calls, |_, _| 0);
    proxied_log.requests.base_times_us.fill(0);
    assert_eq!(waits_of(&proxied_log), None);
    assert_eq!(table().with_recorded_waits(&log).call_ns(1, 100), 100_000);
}

#[test]
fn a_log_without_a_table_prices_its_calls_by_itself() {
    let calls: Vec<&[u32]> = CALLS.into_iter().cycle().take(200).collect();
    let log = log_of(&calls, |_, keys| keys.iter().map(|keys| 500 + 2 * (keys - 1)).sum());
    let cost = CostModel::of_log(&log, None).unwrap().unwrap();
    assert_eq!((cost.call_ns(1, 1), cost.call_ns(11, 1 << 20)), (500_000, 520_000));
}
