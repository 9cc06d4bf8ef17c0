//! `stats policy`: the settings of the eviction policy, what was done to them, and why nothing is changed now.

use glasscache_store::tuning::Goal;
use glasscache_store::{PolicyReport, PolicySwitch};

use super::live::{Field, ratio, write_entries, write_fields};
use super::table::Value;
use crate::session::context::Context;
use crate::session::rows::{Rows, yes_or_no};

/// Executes `stats policy`.
pub(super) fn write_policy(context: &Context<'_>, out: &mut Vec<u8>) {
    let report = context.shared.live.report();
    let mut rows = Rows::new(out);
    write_fields(POLICY_FIELDS, "", &report.policy, &mut rows);
    write_entries(SWITCH_FIELDS, "", &report.policy.last_switches, &mut rows);
    rows.end();
}

/// Why nothing is changed now.
pub(crate) fn waiting(policy: &PolicyReport) -> String {
    match policy.wait_reason {
        Some(reason) => reason.to_string(),
        None => "the settings are fixed; -o policy=tuned lets them follow the load".to_owned(),
    }
}

/// How misses are weighed.
pub(crate) fn weighing(policy: &PolicyReport) -> Option<String> {
    let sentence = match (policy.goal?, policy.mean_fill_us) {
        (Goal::Objects, _) => "every miss counts 1",
        (Goal::Bytes, _) => "a miss counts the bytes of its item",
        (Goal::Time, Some(_)) => "a miss counts the time in which clients filled its key",
        (Goal::Time, None) => {
            "every miss counts alike, because no client has filled one under a lease so far"
        }
    };
    Some(sentence.to_owned())
}

/// The rows of the settings.
#[rustfmt::skip]
pub(crate) static POLICY_FIELDS: &[Field<PolicyReport>] = &[
    Field::new("mode", "", "`fixed` or `tuned`, as `-o policy` is set", |p| if p.is_tuned() { "tuned" } else { "fixed" }.into()),
    Field::new("goal", "", "what is minimised, as `-o policy_goal` is set: `objects`, every miss counts 1; `bytes`, a miss counts the bytes of its item; `time`, it counts the time in which clients fill it; absent if the settings are fixed", |p| p.goal.map_or(Value::Absent, |goal| goal.name().into())),
    Field::new("weighing", "", "how misses are weighed now; absent if the settings are fixed", |p| weighing(p).map_or(Value::Absent, Value::from)),
    Field::new("mean_fill_us", "us", "under the goal `time` the mean time of recent fills of sampled keys under a lease, which also stands for keys without one; absent before the first", |p| p.mean_fill_us.map_or(Value::Absent, Value::from)),
    Field::new("settings", "", "the settings now: share of the small queue, uses that move an item to the main queue, whether a key that the ghost remembers starts in the small queue all the same, size of the ghost, share of the small queue in which uses do not count", |p| p.settings.to_string().into()),
    Field::new("small_percent", "%", "share of the stored bytes that the small queue has", |p| u32::from(p.settings.small_percent).into()),
    Field::new("promotion_uses", "", "uses in the small queue that move an item to the main queue; uses are counted up to 3, so 4 is never", |p| u32::from(p.settings.promotion_uses).into()),
    Field::new("ghost_promotes", "", "1 if an item that the ghost remembers starts in the main queue, else 0", |p| u32::from(p.settings.ghost_promotes).into()),
    Field::new("ghost_percent", "%", "keys that the ghost remembers per hundred stored items", |p| u32::from(p.settings.ghost_percent).into()),
    Field::new("skip_percent", "%", "share of the small queue, from its young end, in which uses do not count", |p| u32::from(p.settings.skip_percent).into()),
    Field::new("age_s", "s", "how long they have been in use", |p| p.age_s.into()),
    Field::new("waiting", "", "why they are not changed now", |p| waiting(p).into()),
    Field::new("windows", "", "windows in which other settings were compared: each of four gets for each item, and at least a minute", |p| p.windows.into()),
    Field::new("switches", "", "changes of the settings since the start", |p| p.switches.into()),
    Field::new("undos", "", "those of them that took another one back", |p| p.undos.into()),
    Field::new("sampled_items", "", "sampled items that are stored, with which settings are compared", |p| p.sampled_items.into()),
    Field::new("keys_per_sample", "", "one in this many keys is sampled for that; 0 if the settings are fixed", |p| p.keys_per_sample.into()),
];

/// The rows of each of the last changes.
#[rustfmt::skip]
pub(crate) static SWITCH_FIELDS: &[Field<PolicySwitch>] = &[
    Field::new("age_s", "s", "how long ago the settings were changed", |s| s.age_s.into()),
    Field::new("from", "", "the settings before", |s| s.from.to_string().into()),
    Field::new("to", "", "the settings after", |s| s.to.to_string().into()),
    Field::new("reason", "", "`better`: fewer misses were expected; `forecast_missed`: they did not come, the change before is taken back; `before_better`: the settings before would miss less by now; `untested`: a flush, a change of `-m` or too few sampled items ended the comparison of the change before", |s| s.record.reason.name().into()),
    Field::new("expected_gain", "", "the part of the misses that was expected to be avoided; absent where a change is taken back", |s| s.record.forecast().map_or(Value::Absent, |(gain, _)| ratio(gain))),
    Field::new("expected_low", "", "lower end of its 95 % interval", |s| s.record.forecast().map_or(Value::Absent, |(gain, error)| ratio(gain - error))),
    Field::new("expected_high", "", "upper end of its 95 % interval", |s| s.record.forecast().map_or(Value::Absent, |(gain, error)| ratio(gain + error))),
    Field::new("gain", "", "the part that was avoided in the windows since, up to eight; absent before the first", |s| s.record.came_gain().map_or(Value::Absent, ratio)),
    Field::new("gain_windows", "", "the number of these windows", |s| s.record.came.windows.into()),
    Field::new("forecast", "", "`waiting`, `held` or `broken`: whether `gain` lies in the interval; absent where a change is taken back", forecast_name),
    Field::new("undone", "", "`yes` if it was taken back", |s| yes_or_no(s.record.is_undone).into()),
];

/// Whether the forecast of a change came true.
fn forecast_name(switch: &PolicySwitch) -> Value {
    match (switch.record.forecast(), switch.record.is_forecast_met()) {
        (None, _) => Value::Absent,
        (Some(_), None) => "waiting".into(),
        (Some(_), Some(is_met)) => if is_met { "held" } else { "broken" }.into(),
    }
}

#[cfg(test)]
mod tests {
    use glasscache_store::tuning::{
        Outcome, PolicySettings, SwitchReason, SwitchRecord, WaitReason,
    };

    use super::super::live::format_fields;
    use super::*;

    fn switch(reason: SwitchReason, windows: u32) -> PolicySwitch {
        let record = SwitchRecord {
            requests: 1000,
            now_s: Some(60),
            from: 0,
            to: 3,
            reason,
            expected: 0.1,
            error: 0.03,
            came: Outcome { windows, gain: 0.05 },
            is_undone: false,
        };
        let [from, to] = [0, 3].map(PolicySettings::of_candidate);
        PolicySwitch { from, to, age_s: 5, record }
    }

    fn rows(switch: &PolicySwitch) -> String {
        String::from_utf8(format_fields(SWITCH_FIELDS, switch)).unwrap()
    }

    #[test]
    fn a_switch_has_its_forecast_and_whether_it_came() {
        let waiting = rows(&switch(SwitchReason::Better, 0));
        assert!(waiting.contains("STAT expected_low 0.070000\r\nSTAT expected_high 0.130000"));
        assert!(waiting.contains("STAT forecast waiting") && !waiting.contains("STAT gain "));
        assert!(rows(&switch(SwitchReason::Better, 2)).contains("STAT forecast broken"));
        let undo = rows(&switch(SwitchReason::ForecastMissed, 0));
        assert!(!undo.contains("expected") && !undo.contains("STAT forecast "), "{undo}");
    }

    #[test]
    fn fixed_settings_report_how_they_are_tuned_and_tuned_ones_why_they_stay() {
        let fixed = PolicyReport::default();
        assert!(waiting(&fixed).contains("-o policy=tuned"));
        let wait_reason = Some(WaitReason::TooFewItems);
        let text_of = |policy: &PolicyReport| {
            String::from_utf8(format_fields(POLICY_FIELDS, policy)).unwrap()
        };
        let text = text_of(&fixed);
        assert!(
            text.starts_with("STAT mode fixed\r\nSTAT settings small=10%,main=1,ghost-main=0,")
        );
        let tuned = PolicyReport { goal: Some(Goal::Objects), wait_reason, ..fixed };
        let text = text_of(&tuned);
        assert!(text.starts_with(
            "STAT mode tuned\r\nSTAT goal objects\r\nSTAT weighing every miss counts 1\r\n"
        ));
        assert!(text.contains("STAT waiting there are too few items for a decision\r\n"));
        let by_time = PolicyReport { goal: Some(Goal::Time), ..tuned };
        let text = text_of(&by_time);
        assert!(
            text.contains(
                "STAT weighing every miss counts alike, because no client has filled one"
            )
        );
        assert!(!text.contains("mean_fill_us"), "{text}");
        let text = text_of(&PolicyReport { mean_fill_us: Some(12_000), ..by_time });
        assert!(text.contains(
            "counts the time in which clients filled its key\r\nSTAT mean_fill_us 12000\r\n"
        ));
    }
}
