//! What a running store reports of its own load: the miss-ratio curve of its policy, its hot keys, its prefixes.
//!
//! Plain data and pure logic: the caller passes events and the time.

mod advice;
mod candidates;
mod distinct;
mod ghost_tags;
mod hash_map;
mod hot_keys;
mod input;
mod items;
mod lru;
mod miniature;
mod model;
mod pending_fills;
mod prefixes;
mod report;
mod resize_check;
mod sampled_keys;
mod sizing;
mod window;

pub use input::LiveInput;
pub use model::LiveModel;
pub use report::{
    CurvePoint, CurveState, HotKey, HotKeyOrder, HotKeyWindow, LiveCurve, LiveReport, MemoryAdvice,
    PolicyReport, PolicySwitch, PrefixUse, ResizeForecast, SamplingCosts,
};
