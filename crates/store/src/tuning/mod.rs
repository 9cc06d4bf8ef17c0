//! A policy that tunes itself: the settings it chooses from, and the controller that decides when to change them.
//!
//! Pure logic. `Tuner` has every candidate in miniature, to which the caller passes the same sample of the requests and the
//! time, and obeys `Controller`; docs/decisions/store.md, 0190, has the rules and what was measured.

mod controller;
mod gains;
mod goal;
mod settings;
mod switch_record;
mod trial;
mod tuner;
mod window;

pub use controller::{Action, Controller, WaitReason};
pub use goal::Goal;
pub(crate) use settings::ChangeableSettings;
pub use settings::PolicySettings;
pub use switch_record::{Outcome, SwitchReason, SwitchRecord};
pub use tuner::{CacheTotals, TunableCache, Tuner};
pub use window::{KEY_GROUPS, MissCosts, Window, WindowLength, group_of_hash, sampled_share};
pub(crate) use window::{SAMPLED_ITEMS, SAMPLED_ITEMS_MIN, sampled_items_min};
