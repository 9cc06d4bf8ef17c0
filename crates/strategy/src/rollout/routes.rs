//! The time that requests of each route wait, in both groups.
//!
//! A strategy that helps on the whole may slow down one kind of request, which a mean over all of them hides. Of each
//! route only sums are kept, so the number of routes may be large; it is bounded.

use std::collections::BTreeMap;

use super::counts::GroupCounts;
use super::metrics::{Estimate, variance_inflation};
use super::rollout_share::Group;

/// Routes that are kept apart; requests of further ones are in the groups alone.
const ROUTES_MAX: usize = 100;

/// Requests in each group without which a route is not compared.
const REQUESTS_MIN: u64 = 30;

/// The quantile of a normal distribution that one of a hundred comparisons exceeds by chance, on both sides together.
const PROBABILITY_OF_CHANCE: f64 = 0.01;

/// Sums over the requests of a route in one group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RouteSums {
    /// How many requests.
    pub requests: u64,
    /// Their added time in nanoseconds.
    pub added_ns: u64,
    /// The sum of the squares of their added times, in square milliseconds.
    pub added_ms_squares: f64,
}

impl RouteSums {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.added_ns = self.added_ns.saturating_add(other.added_ns);
        self.added_ms_squares += other.added_ms_squares;
    }

    /// The mean added time of a request in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        self.added_ns as f64 / 1e6 / self.requests.max(1) as f64
    }

    /// The variance of the mean, if requests were independent.
    fn variance_of_mean(&self) -> f64 {
        let requests = self.requests.max(2) as f64;
        let squares = self.added_ms_squares - self.mean_ms().powi(2) * requests;
        squares.max(0.0) / (requests - 1.0) / requests
    }
}

/// A route in both groups.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RouteOfGroups {
    /// Its requests that ran the strategy.
    pub strategy: RouteSums,
    /// Those that did not.
    pub control: RouteSums,
}

/// The routes by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Routes(BTreeMap<String, RouteOfGroups>);

/// A route with what its requests wait more under the strategy, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteDifference {
    /// Its name.
    pub name: String,
    /// Its sums.
    pub sums: RouteOfGroups,
    /// Mean added time of the strategy's requests less that of the control group's. The interval is wider the more
    /// routes there are, so that a route of many is not outside by chance.
    pub difference: Estimate,
}

impl Routes {
    /// Counts a request of a route.
    pub fn add(&mut self, group: Group, route: &str, added_ns: u64) {
        let is_known = self.0.contains_key(route);
        if !is_known && self.0.len() >= ROUTES_MAX {
            return;
        }
        let added_ms = added_ns as f64 / 1e6;
        let request = RouteSums { requests: 1, added_ns, added_ms_squares: added_ms.powi(2) };
        let sums = self.0.entry(route.to_owned()).or_default();
        match group {
            Group::Strategy => sums.strategy.add(&request),
            Group::Control => sums.control.add(&request),
        }
    }

    /// Adds a route as a document has it, or as another process counted it.
    pub fn add_sums(&mut self, route: &str, sums: &RouteOfGroups) {
        let known_sums = self.0.entry(route.to_owned()).or_default();
        known_sums.strategy.add(&sums.strategy);
        known_sums.control.add(&sums.control);
    }

    /// Each route with its sums, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RouteOfGroups)> {
        self.0.iter().map(|(name, sums)| (name.as_str(), sums))
    }

    /// The routes that can be compared, those that lose most first; `strategy` and `control` are all requests.
    pub fn differences(
        &self,
        strategy: &GroupCounts,
        control: &GroupCounts,
    ) -> Vec<RouteDifference> {
        let is_compared = |sums: &RouteOfGroups| {
            sums.strategy.requests.min(sums.control.requests) >= REQUESTS_MIN
        };
        let compared = self.iter().filter(|(_, sums)| is_compared(sums));
        let compared: Vec<_> = compared.collect();
        let quantile = upper_normal_quantile(PROBABILITY_OF_CHANCE / 2.0 / compared.len() as f64);
        let inflations = [strategy, control].map(variance_inflation);
        let mut differences: Vec<RouteDifference> = compared
            .into_iter()
            .map(|(name, sums)| {
                let value = sums.strategy.mean_ms() - sums.control.mean_ms();
                let variance = sums.strategy.variance_of_mean() * inflations[0]
                    + sums.control.variance_of_mean() * inflations[1];
                let margin = quantile * variance.sqrt();
                let difference = Estimate { value, low: value - margin, high: value + margin };
                RouteDifference { name: name.to_owned(), sums: *sums, difference }
            })
            .collect();
        differences.sort_by(|a, b| b.difference.value.total_cmp(&a.difference.value));
        differences
    }
}

/// The number above which a normal variable is with this probability (Abramowitz and Stegun 26.2.23).
fn upper_normal_quantile(probability: f64) -> f64 {
    let t = (-2.0 * probability.ln()).sqrt();
    t - (2.515_517 + 0.802_853 * t + 0.010_328 * t * t)
        / (1.0 + 1.432_788 * t + 0.189_269 * t * t + 0.001_308 * t.powi(3))
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{Random, Traffic};
    use super::*;

    #[test]
    fn a_normal_quantile_is_that_of_the_tables() {
        for (probability, expected) in [(0.005, 2.576), (0.0005, 3.291), (0.025, 1.960)] {
            assert!((upper_normal_quantile(probability) - expected).abs() < 1e-3);
        }
    }

    #[test]
    fn routes_that_do_not_differ_are_outside_their_interval_in_5_of_100_roll_outs_at_most() {
        let (mut random, mut outside) = (Random(17), 0);
        for _ in 0..100 {
            let mut routes = Routes::default();
            let (mut strategy, mut control) = (GroupCounts::default(), GroupCounts::default());
            let mut traffic = Traffic::typical();
            for number in 0..4000 {
                let cost = traffic.draw_request(&mut random);
                let (group, counts) = match number % 2 {
                    0 => (Group::Strategy, &mut strategy),
                    _ => (Group::Control, &mut control),
                };
                counts.add(&cost);
                routes.add(group, ["a", "b", "c", "d", "e"][number / 2 % 5], cost.added_ns);
            }
            let differences = routes.differences(&strategy, &control);
            assert_eq!(differences.len(), 5);
            outside += usize::from(
                differences
                    .iter()
                    .any(|route| route.difference.low > 0.0 || route.difference.high < 0.0),
            );
        }
        assert!(outside <= 5, "{outside}");
    }

    #[test]
    fn the_number_of_routes_is_bounded_and_those_known_are_counted_on() {
        let mut routes = Routes::default();
        for number in 0..1000 {
            routes.add(Group::Control, &number.to_string(), 1);
        }
        routes.add(Group::Strategy, "0", 5_000_000);
        assert_eq!(routes.iter().count(), ROUTES_MAX);
        let (_, first) = routes.iter().next().unwrap();
        let expected = RouteSums { requests: 1, added_ns: 5_000_000, added_ms_squares: 25.0 };
        assert_eq!(first.strategy, expected);
    }
}
