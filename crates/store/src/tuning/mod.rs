//! A policy that tunes itself: the settings it chooses from, and the controller that decides when to change them.
//!
//! Pure logic. The caller runs every candidate in miniature over the same sample of the keys, counts their misses, and
//! passes the counts of each window in; docs/decisions/store.md, 0190, has the rules and what was measured.

mod controller;
mod settings;
mod window;

pub use controller::{Action, Controller, Goal, Outcome, SwitchReason, SwitchRecord, WaitReason};
pub use settings::PolicySettings;
pub use window::{KEY_GROUPS, MissCosts, Window, WindowLength, group_of_hash, sampled_share};
