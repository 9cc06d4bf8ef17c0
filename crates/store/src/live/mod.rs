//! What a running store reports of its own load: the miss-ratio curve of its policy, its hot keys, its prefixes.
//!
//! Plain data and pure logic: the caller passes events and the time.

mod report;

pub use report::{
    CurvePoint, CurveState, HotKey, HotKeyOrder, HotKeyWindow, LiveCurve, LiveReport, MemoryAdvice,
    PrefixUse, SamplingCosts,
};
