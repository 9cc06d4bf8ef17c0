//! Synthetic latencies with known percentiles and known development, for the tests.

use crate::load::Rng;

/// How the latency of a synthetic run develops.
#[derive(Debug, Clone, Copy)]
pub(super) enum Development {
    /// One level.
    Flat,
    /// Slower by 1.3 to 4 in the first 5 to 40 %, as a step or a decay.
    WarmUp,
    /// Slower by 1.3 to 3 after 30 to 85 %, as a step or a slope.
    SlowDown,
    /// Up and down by 1.4 to 3, as steps or a wave.
    Unsteady,
}

/// Independent log-normal samples; percentile p is the exponential of the normal quantile.
pub(super) fn draw_independent_samples(count: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    (0..count).map(|_| rng.normal().exp()).collect()
}

/// The same distribution, but neighbours are correlated: 1/e at a distance of `reach` samples.
pub(super) fn draw_correlated_samples(count: usize, reach: f64, seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    let correlation = (-1.0 / reach).exp();
    let mut correlated_draw = rng.normal();
    let mut draw_next = || {
        correlated_draw =
            correlation * correlated_draw + (1.0 - correlation * correlation).sqrt() * rng.normal();
        correlated_draw.exp()
    };
    (0..count).map(|_| draw_next()).collect()
}

/// The quantile of the standard normal distribution, by bisection of its distribution function.
pub(super) fn find_normal_quantile(share: f64) -> f64 {
    // Simpson's rule over the density from 0.
    let distribution = |x: f64| {
        let density = |t: f64| (-t * t / 2.0).exp() / std::f64::consts::TAU.sqrt();
        let step = x / 200.0;
        let sum: f64 = (0..100)
            .map(|index| {
                let t = f64::from(index) * 2.0 * step;
                density(t) + 4.0 * density(t + step) + density(t + 2.0 * step)
            })
            .sum();
        0.5 + sum * step / 3.0
    };
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if distribution(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Latencies of a run with noise and 1 % of slow requests.
pub(super) fn draw_run_latencies(development: Development, seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed ^ 0x5e71);
    let count = [2_000, 10_000, 50_000][rng.below(3) as usize];
    let mut uniform = |low: f64, high: f64| low + (high - low) * rng.next_fraction();
    let (noise, base_latency, is_step) =
        (uniform(0.1, 0.5), uniform(20.0, 500.0), uniform(0.0, 1.0) < 0.5);
    // Where the level changes, as a share of the run, or for `Unsteady` how many times; and by which factor.
    let (change_position, change_count, factor) = match development {
        Development::Flat => (1.0, 0.0, 1.0),
        Development::WarmUp => (uniform(0.05, 0.4), 0.0, uniform(1.3, 4.0)),
        Development::SlowDown => (uniform(0.3, 0.85), 0.0, uniform(1.3, 3.0)),
        Development::Unsteady => (0.0, uniform(5.0, 12.0).floor(), uniform(1.4, 3.0)),
    };
    let level_at = |position: f64| match (development, is_step) {
        (Development::WarmUp, true) if position < change_position => factor,
        (Development::WarmUp, false) => {
            1.0 + (factor - 1.0) * (-4.0 * position / change_position).exp()
        }
        (Development::SlowDown, true) if position >= change_position => factor,
        (Development::SlowDown, false) => {
            1.0 + (factor - 1.0)
                * ((position - change_position) / (1.0 - change_position)).clamp(0.0, 1.0)
        }
        (Development::Unsteady, true) if (position * change_count) as u64 % 2 == 1 => factor,
        (Development::Unsteady, false) => {
            (factor.ln() * (position * change_count * std::f64::consts::PI).sin()).exp()
        }
        _ => 1.0,
    };
    (0..count)
        .map(|index| {
            let tail = if rng.next_fraction() < 0.01 {
                1.0 - 10.0 * (1.0 - rng.next_fraction()).ln()
            } else {
                1.0
            };
            base_latency
                * level_at(f64::from(index) / f64::from(count))
                * (noise * rng.normal()).exp()
                * tail
        })
        .collect()
}
