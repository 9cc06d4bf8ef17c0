//! A miss-ratio curve of a running server, and what more or less memory would bring by it.

use std::collections::HashMap;

use serde::Serialize;

/// One size of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Memory limit in bytes.
    pub memory_bytes: u64,
    /// Misses over gets, 0 to 1.
    pub miss_ratio: f64,
    /// Lower end of the interval of `miss_ratio`.
    pub low: f64,
    /// Upper end of the interval of `miss_ratio`.
    pub high: f64,
}

/// The curve of the server's own policy, by ascending memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// The sizes; a curve that is not known yet (too few items, not warm, just resized) has none.
    pub points: Vec<CurvePoint>,
}

/// Another size than the present one, and what it would change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resize {
    /// The other memory limit in bytes.
    pub memory_bytes: u64,
    /// The present miss ratio by the curve, 0 to 1.
    pub miss_ratio_now: f64,
    /// The miss ratio of the other size, 0 to 1.
    pub miss_ratio: f64,
    /// Half the width of the interval of `miss_ratio`.
    pub margin: f64,
}

impl Resize {
    /// The share of the present misses that are avoided, 0 to 1; negative where there are more.
    pub fn avoided_share(&self) -> f64 {
        (self.miss_ratio_now - self.miss_ratio) / self.miss_ratio_now.max(f64::MIN_POSITIVE)
    }

    /// Whether as many misses are avoided as are worth a word if the miss ratio is this one.
    fn is_worth_it_at(&self, miss_ratio: f64) -> bool {
        let avoided = self.miss_ratio_now - miss_ratio;
        avoided >= AVOIDED_SHARE_MIN * self.miss_ratio_now && avoided >= AVOIDED_RATIO_MIN
    }

    /// Whether the size avoids misses, by more than its interval leaves open.
    fn is_worth_it(&self) -> bool {
        self.is_worth_it_at(self.miss_ratio) && self.miss_ratio + self.margin < self.miss_ratio_now
    }
}

/// Sizes that are read of a reply.
const POINTS_MAX: usize = 1000;
/// The least share of the misses that makes more memory worth a word.
const AVOIDED_SHARE_MIN: f64 = 0.05;
/// The least decrease of the miss ratio that does.
const AVOIDED_RATIO_MIN: f64 = 0.005;
/// Additional misses over gets that giving memory back may cost.
const GIVEN_UP_RATIO_MAX: f64 = 0.003;

impl Curve {
    /// Reads the rows of `stats curve` of a glasscache; a curve that is not `ok` has no points.
    pub fn of<'r>(rows: impl IntoIterator<Item = (&'r str, &'r str)>) -> Curve {
        let rows: HashMap<&str, &str> = rows.into_iter().collect();
        let is_ok = rows.get("state") == Some(&"ok");
        let to_point = |index: usize| {
            let ratio = |name: &str| -> Option<f64> {
                rows.get(format!("{index}:{name}").as_str())?.parse().ok()
            };
            Some(CurvePoint {
                memory_bytes: rows.get(format!("{index}:memory_bytes").as_str())?.parse().ok()?,
                miss_ratio: ratio("miss_ratio")?,
                low: ratio("low")?,
                high: ratio("high")?,
            })
        };
        let mut points: Vec<CurvePoint> =
            (0..POINTS_MAX).map_while(to_point).filter(|_| is_ok).collect();
        points.sort_by_key(|point| point.memory_bytes);
        Curve { points }
    }

    /// What each other size of the curve would change; empty where the present size is not on the curve.
    pub fn resizes(&self, limit_bytes: u64) -> Vec<Resize> {
        let Some(miss_ratio_now) = self.miss_ratio_at(limit_bytes) else {
            return Vec::new();
        };
        let to_resize = |point: &CurvePoint| Resize {
            memory_bytes: point.memory_bytes,
            miss_ratio_now,
            miss_ratio: point.miss_ratio,
            margin: (point.high - point.low) / 2.0,
        };
        self.points.iter().map(to_resize).collect()
    }

    /// The growth that avoids most misses for each byte added, among those that are worth a word.
    pub fn best_growth(&self, limit_bytes: u64) -> Option<Resize> {
        let gain_by_byte =
            |resize: &Resize| resize.avoided_share() / (resize.memory_bytes - limit_bytes) as f64;
        let growths = self.growths(limit_bytes).filter(Resize::is_worth_it);
        growths.max_by(|first, second| gain_by_byte(first).total_cmp(&gain_by_byte(second)))
    }

    /// Whether no larger size avoids misses that are worth a word, even at the lower end of its interval; false where the
    /// present size is not on the curve.
    pub fn is_flat_above(&self, limit_bytes: u64) -> bool {
        let is_known = self.miss_ratio_at(limit_bytes).is_some();
        is_known
            && self
                .growths(limit_bytes)
                .all(|resize| !resize.is_worth_it_at(resize.miss_ratio - resize.margin))
    }

    fn growths(&self, limit_bytes: u64) -> impl Iterator<Item = Resize> {
        let resizes = self.resizes(limit_bytes).into_iter();
        resizes.filter(move |resize| resize.memory_bytes > limit_bytes)
    }

    /// The smallest size that costs almost no additional misses.
    pub fn best_shrink(&self, limit_bytes: u64) -> Option<Resize> {
        let is_free = |resize: &Resize| {
            resize.memory_bytes < limit_bytes
                && resize.miss_ratio - resize.miss_ratio_now <= GIVEN_UP_RATIO_MAX
        };
        self.resizes(limit_bytes).into_iter().find(is_free)
    }

    /// The miss ratio at this size, between its neighbours by a straight line.
    fn miss_ratio_at(&self, memory_bytes: u64) -> Option<f64> {
        let exact = self.points.iter().find(|point| point.memory_bytes == memory_bytes);
        if let Some(point) = exact {
            return Some(point.miss_ratio);
        }
        let pair = self
            .points
            .windows(2)
            .find(|pair| (pair[0].memory_bytes..pair[1].memory_bytes).contains(&memory_bytes))?;
        let (below, above) = (pair[0], pair[1]);
        let offset = (memory_bytes - below.memory_bytes) as f64
            / (above.memory_bytes - below.memory_bytes) as f64;
        Some(below.miss_ratio + offset * (above.miss_ratio - below.miss_ratio))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve_of(points: &[(u64, f64)]) -> Curve {
        let to_point = |&(memory_bytes, miss_ratio): &(u64, f64)| CurvePoint {
            memory_bytes,
            miss_ratio,
            low: miss_ratio - 0.01,
            high: miss_ratio + 0.01,
        };
        Curve { points: points.iter().map(to_point).collect() }
    }

    #[test]
    fn a_steep_curve_grows_and_a_flat_one_shrinks() {
        let steep = curve_of(&[(50, 0.6), (100, 0.4), (125, 0.3), (200, 0.28)]);
        let growth = steep.best_growth(100).unwrap();
        assert!((growth.margin - 0.01).abs() < 1e-9);
        assert_eq!(growth.memory_bytes, 125);
        assert!((growth.avoided_share() - 0.25).abs() < 1e-9);
        assert_eq!(steep.best_shrink(100), None);
        assert!(!steep.is_flat_above(100) && steep.is_flat_above(200));
        let flat = curve_of(&[(50, 0.102), (75, 0.101), (100, 0.1), (200, 0.1)]);
        assert_eq!(flat.best_growth(100), None);
        assert!(!flat.is_flat_above(100), "0.09 is within the interval");
        assert_eq!(flat.best_shrink(100).unwrap().memory_bytes, 50);
    }

    #[test]
    fn the_rows_of_a_curve_are_read_where_it_is_known() {
        let rows = [
            ("state", "ok"),
            ("memory_bytes", "100"),
            ("0:memory_bytes", "200"),
            ("0:miss_ratio", "0.1"),
            ("0:low", "0.09"),
            ("0:high", "0.11"),
            ("1:memory_bytes", "100"),
            ("1:miss_ratio", "0.3"),
            ("1:low", "0.29"),
            ("1:high", "0.31"),
            ("2:memory_bytes", "x"),
        ];
        let curve = Curve::of(rows);
        let sizes: Vec<u64> = curve.points.iter().map(|point| point.memory_bytes).collect();
        assert_eq!((sizes, curve.points[1].high), (vec![100, 200], 0.11));
        assert_eq!(Curve::of(rows.into_iter().skip(1)), Curve::default());
    }

    #[test]
    fn a_size_between_two_points_is_interpolated_and_one_outside_is_unknown() {
        let curve = curve_of(&[(100, 0.4), (200, 0.2)]);
        assert_eq!(curve.miss_ratio_at(150), Some(0.300_000_000_000_000_04));
        assert!(curve.resizes(300).is_empty() && !curve.is_flat_above(300));
    }
}
