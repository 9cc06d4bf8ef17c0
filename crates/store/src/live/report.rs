//! The results: plain data, as they are printed by every front end.

use std::sync::Arc;

use crate::tuning::{Goal, PolicySettings, SwitchRecord, WaitReason};

/// Everything that is reported of the load, as it was at one second.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LiveReport {
    /// Misses at other sizes.
    pub curve: LiveCurve,
    /// The hottest keys, by window and by order ([`LiveReport::hot_keys`]).
    pub hot_keys: [[Arc<[HotKey]>; HotKeyOrder::ALL.len()]; HotKeyWindow::ALL.len()],
    /// The prefixes with most requests, the most used first.
    pub prefixes: Vec<PrefixUse>,
    /// What the sampling costs.
    pub costs: SamplingCosts,
    /// The settings of the eviction policy, and what was done to them.
    pub policy: PolicyReport,
}

impl LiveReport {
    /// The hottest keys of a window that has ended or is the running one, the hottest first.
    pub fn hot_keys(&self, window: HotKeyWindow, order: HotKeyOrder) -> &[HotKey] {
        let by_order = self.hot_keys.get(window as usize);
        by_order.and_then(|keys| keys.get(order as usize)).map_or(&[], |keys| keys)
    }
}

/// The miss ratio of the store's own policy at other sizes of `-m`, from a sample of its keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LiveCurve {
    /// Whether the rows can be relied on; without [`CurveState::Ok`] there are none.
    pub state: CurveState,
    /// By rising size.
    pub rows: Vec<CurvePoint>,
    /// Bytes of the distinct items requested in the last hour, as they would be stored.
    pub working_set_bytes: u64,
    /// Hits per get if nothing were ever evicted, 0 to 1.
    pub unlimited_hit_ratio: f64,
    /// Sampled items that are stored now.
    pub sampled_items: u64,
    /// `-m` in bytes.
    pub memory_bytes: u64,
    /// Misses per get that the server had in the window, 0 to 1.
    pub miss_ratio: f64,
    /// Gets a second in the window.
    pub gets_per_second: f64,
    /// Seconds of the window that the curve is about.
    pub window_s: u32,
    /// Seconds from a lease that a client was given for a miss to the value that it stored, in the mean since the
    /// start; `None` if there were too few.
    pub miss_time_s: Option<f64>,
    /// What more or less memory would bring, from the largest size to the smallest.
    pub advice: Vec<MemoryAdvice>,
    /// What was expected of the present limit when it was set, and what came.
    pub resize: Option<ResizeForecast>,
}

/// What the curve expected of a change of the limit, and what came. Ratios are misses per get, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResizeForecast {
    /// `-m` before, in bytes.
    pub from_bytes: u64,
    /// `-m` since, in bytes.
    pub memory_bytes: u64,
    /// The miss ratio that was expected.
    pub miss_ratio: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end of its 95 % interval.
    pub high: f64,
    /// The miss ratio over at least a minute and 10,000 gets after the memory was filled; `None` until then.
    pub measured: Option<f64>,
}

impl ResizeForecast {
    /// Whether what came lies in the interval; `None` as long as it is not known.
    pub fn is_inside(&self) -> Option<bool> {
        self.measured.map(|miss_ratio| (self.low..=self.high).contains(&miss_ratio))
    }
}

/// One size of the curve. Ratios are misses per get, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CurvePoint {
    /// `-m` in bytes.
    pub memory_bytes: u64,
    /// The expected miss ratio.
    pub miss_ratio: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end of its 95 % interval.
    pub high: f64,
    /// The miss ratio of LRU at this size, to compare with.
    pub lru_miss_ratio: f64,
}

/// Whether a curve can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CurveState {
    /// It can.
    Ok,
    /// Too few items are sampled: the curve would be noise.
    TooFew,
    /// Not enough was stored since the start.
    #[default]
    Warming,
    /// The limit of memory has just changed.
    Resized,
    /// Too many of the sampled events were lost: the curve would be too flat.
    EventsLost,
}

impl CurveState {
    /// The name in replies and JSON.
    pub fn name(self) -> &'static str {
        match self {
            CurveState::Ok => "ok",
            CurveState::TooFew => "too_few",
            CurveState::Warming => "warming",
            CurveState::Resized => "resized",
            CurveState::EventsLost => "events_lost",
        }
    }

    /// Why there is no curve, in a sentence; `None` if there is one.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            CurveState::Ok => None,
            CurveState::TooFew => Some("too few items are stored for a sample of them to be exact"),
            CurveState::Warming => {
                Some("the cache is not warm yet: less than half of its memory was filled")
            }
            CurveState::Resized => {
                Some("the memory limit has just changed: less than half of it was filled since")
            }
            CurveState::EventsLost => Some(
                "more than a tenth of the sampled events were lost: the processors are busy, or the load has just begun",
            ),
        }
    }
}

/// What another size would bring.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryAdvice {
    /// `-m` in bytes.
    pub memory_bytes: u64,
    /// The change in per cent of the present `-m`.
    pub change_percent: i32,
    /// Misses a second now.
    pub misses_per_second: f64,
    /// Misses a second that would be avoided; negative: more misses.
    pub avoided_per_second: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end of its 95 % interval.
    pub high: f64,
    /// Seconds a second that clients would spend less on filling misses, if the time of one is known.
    pub avoided_backend_s: Option<f64>,
    /// The same in words.
    pub sentence: String,
}

/// The time over which hot keys are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HotKeyWindow {
    /// One second.
    Second,
    /// One minute.
    Minute,
    /// One hour.
    Hour,
}

impl HotKeyWindow {
    /// All, in the order of [`LiveReport::hot_keys`].
    pub const ALL: [HotKeyWindow; 3] =
        [HotKeyWindow::Second, HotKeyWindow::Minute, HotKeyWindow::Hour];

    /// `1s`, `1m` or `1h`.
    pub fn name(self) -> &'static str {
        match self {
            HotKeyWindow::Second => "1s",
            HotKeyWindow::Minute => "1m",
            HotKeyWindow::Hour => "1h",
        }
    }

    /// The window of this name.
    pub fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|window| window.name().as_bytes() == name)
    }

    /// Its length.
    pub fn seconds(self) -> u32 {
        match self {
            HotKeyWindow::Second => 1,
            HotKeyWindow::Minute => 60,
            HotKeyWindow::Hour => 3600,
        }
    }
}

/// By what keys are hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HotKeyOrder {
    /// Requests.
    Requests,
    /// Bytes of the values that were sent.
    Bytes,
}

impl HotKeyOrder {
    /// Both, in the order of [`LiveReport::hot_keys`].
    pub const ALL: [HotKeyOrder; 2] = [HotKeyOrder::Requests, HotKeyOrder::Bytes];

    /// `requests` or `bytes`.
    pub fn name(self) -> &'static str {
        match self {
            HotKeyOrder::Requests => "requests",
            HotKeyOrder::Bytes => "bytes",
        }
    }

    /// The order of this name.
    pub fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.name().as_bytes() == name)
    }
}

/// A key and its part of the load.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKey {
    /// The key, any bytes.
    pub key: Arc<[u8]>,
    /// Gets of it in the window.
    pub requests: u64,
    /// Bytes of its value that these gets sent.
    pub bytes: u64,
    /// Its part of all requests, or of all bytes, as the order of the list is; 0 to 1.
    pub share: f64,
    /// How far `share` may be off, as half of a 95 % interval.
    pub error: f64,
}

/// What the keys with one prefix have and do, scaled up from a sample.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PrefixUse {
    /// The prefix, with the character that ends it; empty for keys without one.
    pub prefix: Vec<u8>,
    /// Gets in the last hour.
    pub requests: u64,
    /// Those that hit.
    pub hits: u64,
    /// Items stored in the last hour.
    pub sets: u64,
    /// Bytes of the values that gets sent.
    pub bytes: u64,
    /// Hits per get, 0 to 1.
    pub hit_ratio: f64,
    /// Mean bytes of key and value of what was stored.
    pub item_bytes_mean: u64,
    /// The part of what was stored that never expires, 0 to 1.
    pub no_ttl_share: f64,
    /// The median TTL of the rest in seconds, to a factor of two; 0 if there is none.
    pub ttl_s_median: u32,
}

/// The settings of the eviction policy, and what was done to them since the start.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyReport {
    /// What the settings that are chosen from the load minimise; `None` if they are fixed.
    pub goal: Option<Goal>,
    /// The mean time in microseconds of the fills by which misses are weighed, if the goal is time and one was measured.
    pub mean_fill_us: Option<u64>,
    /// The settings now.
    pub settings: PolicySettings,
    /// How long they have been in use, in seconds.
    pub age_s: u64,
    /// Why they are not changed now; `None` if they are fixed.
    pub wait_reason: Option<WaitReason>,
    /// Windows in which the candidates were compared.
    pub windows: u64,
    /// Changes of the settings.
    pub switches: u64,
    /// Changes that took another one back.
    pub undos: u64,
    /// Sampled items that are stored, with which the candidates are compared.
    pub sampled_items: u64,
    /// One in this many keys is sampled for that; 0 if the settings are fixed.
    pub keys_per_sample: u32,
    /// The last changes, the latest first.
    pub last_switches: Vec<PolicySwitch>,
}

impl PolicyReport {
    /// Whether the settings are chosen from the load.
    pub fn is_tuned(&self) -> bool {
        self.goal.is_some()
    }
}

impl Default for PolicyReport {
    fn default() -> Self {
        PolicyReport {
            goal: None,
            mean_fill_us: None,
            settings: PolicySettings::DEFAULT,
            age_s: 0,
            wait_reason: None,
            windows: 0,
            switches: 0,
            undos: 0,
            sampled_items: 0,
            keys_per_sample: 0,
            last_switches: Vec::new(),
        }
    }
}

/// One change of the settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicySwitch {
    /// The settings before.
    pub from: PolicySettings,
    /// The settings after.
    pub to: PolicySettings,
    /// How long ago it was, in seconds.
    pub age_s: u64,
    /// What was expected, and what came.
    pub record: SwitchRecord,
}

/// What the sampling costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SamplingCosts {
    /// One in this many keys is sampled.
    pub keys_per_sample: u32,
    /// Events that were processed.
    pub events: u64,
    /// Events that were lost because the sampling thread could not keep up.
    pub dropped_events: u64,
    /// Memory of sample and results, outside `-m`.
    pub memory_bytes: u64,
    /// CPU time of the thread that processes the events.
    pub cpu_us: u64,
}
