//! The controller: which candidate's settings the cache should have, from windows of paired counts.
//!
//! All candidates see the same sampled requests in the same window, so a change of the load cancels out of their
//! difference. Before a switch it is rehearsed: a copy of the cache's miniature changes its settings, because what the
//! old settings have evicted stays away for a while. Afterwards a copy that has kept the old settings shows what the
//! switch brought.

use std::collections::VecDeque;
use std::fmt;

use super::gains::{ERRORS_MIN, Gains, WINDOWS_IN_A_ROW, margin};
use super::switch_record::{Outcome, SwitchReason, SwitchRecord};
use super::trial::Trial;
use super::window::{MissCosts, Window};

/// Windows after a switch in which the cache still holds what its old settings kept.
const SETTLING_WINDOWS: u32 = 1;

/// Windows after a switch in which it is compared with its forecast, and no other one is made.
const TRIAL_WINDOWS: u32 = 8;

/// The fewest windows of a rehearsal, and the most.
const REHEARSAL_WINDOWS: (u32, u32) = (3, 16);

/// Windows without a switch after one that failed: the first time, and at most.
const WAIT_WINDOWS: (u32, u32) = (4, 64);

/// Gets for each stored item after a disturbance in which nothing is decided.
const SILENT_REQUESTS_PER_ITEM: u64 = 2;

/// Switches that are kept for reports.
const RECORDS_MAX: usize = 64;

/// Forecasts whose errors widen the interval of the next one.
const CHECKED_FORECASTS: usize = 8;

/// Windows whose ratio between the cache and its miniature is kept.
const RATIOS_KEPT: usize = 8;

/// Why nothing is changed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitReason {
    /// The cache has started, or was resized or flushed, a short time ago.
    #[default]
    Disturbed,
    /// There are not as many sampled items as a comparison needs.
    TooFewItems,
    /// The last switch is still compared with its forecast.
    OnTrial,
    /// The last switch failed.
    Waiting,
    /// Other settings are better, but a switch to them would not pay, for what was evicted is gone.
    Rehearsing,
    /// No candidate is certainly better.
    NothingBetter,
    /// One is, but not yet for long enough.
    NotLongEnough,
}

impl fmt::Display for WaitReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            WaitReason::Disturbed => {
                "the cache started, was resized or was flushed a short time ago"
            }
            WaitReason::TooFewItems => "there are too few items for a decision",
            WaitReason::OnTrial => "the last switch is still compared with its forecast",
            WaitReason::Rehearsing => {
                "other settings are better, but a change to them has not paid yet"
            }
            WaitReason::Waiting => "the last switch did not pay for itself",
            WaitReason::NothingBetter => "no other settings are certainly better",
            WaitReason::NotLongEnough => {
                "other settings are better, but not yet in four windows in a row"
            }
        })
    }
}

/// What the caller has to do after a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Action {
    /// Nothing.
    #[default]
    None,
    /// Copy the cache's miniature, give the copy this candidate's settings, and count it as the copy from now on.
    Rehearse(usize),
    /// Change the cache and its miniature to this candidate's settings. The copy is that miniature as it was before.
    Switch(usize),
    /// The copy is no longer needed.
    EndCopy,
}

/// A switch that is tried in miniature.
#[derive(Debug, Clone, Copy)]
struct Rehearsal {
    candidate: usize,
    gains: Gains,
}

/// Chooses among candidates.
#[derive(Debug, Clone)]
pub struct Controller {
    current: usize,
    /// Windows in a row in which each candidate was better than the cache.
    streaks: Vec<u32>,
    rehearsal: Option<Rehearsal>,
    /// Candidates whose rehearsal brought nothing since the last switch or since the others were rehearsed.
    rehearsed: Vec<bool>,
    trial: Trial,
    /// The cost of the cache over the cost of its miniature, in the last windows.
    ratios: VecDeque<f64>,
    wait_windows: u32,
    wait_windows_left: u32,
    /// Nothing is decided before so many gets, for this reason.
    silent_until: Option<(u64, WaitReason)>,
    wait_reason: WaitReason,
    /// Whether a silence has ended the trial of the last switch.
    has_untested_switch: bool,
    records: VecDeque<SwitchRecord>,
    switch_count: u64,
    undo_count: u64,
}

impl Controller {
    /// A controller of so many candidates, of which the first is the default and in use.
    pub fn new(candidate_count: usize) -> Self {
        Self {
            current: 0,
            streaks: vec![0; candidate_count],
            rehearsal: None,
            rehearsed: vec![false; candidate_count],
            trial: Trial::default(),
            ratios: VecDeque::new(),
            wait_windows: WAIT_WINDOWS.0,
            wait_windows_left: 0,
            silent_until: None,
            wait_reason: WaitReason::Disturbed,
            has_untested_switch: false,
            records: VecDeque::new(),
            switch_count: 0,
            undo_count: 0,
        }
    }

    /// The candidate in use.
    pub fn current(&self) -> usize {
        self.current
    }

    /// Why nothing is changed now.
    pub fn wait_reason(&self) -> WaitReason {
        self.wait_reason
    }

    /// The last switches, the oldest first.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &SwitchRecord> {
        self.records.iter()
    }

    /// Switches since the start.
    pub fn switch_count(&self) -> u64 {
        self.switch_count
    }

    /// Those of them that took another one back.
    pub fn undo_count(&self) -> u64 {
        self.undo_count
    }

    /// Decides nothing for a while, for example because the memory was resized or items were flushed.
    pub fn be_silent(&mut self, requests: u64, items: u64, reason: WaitReason) {
        self.has_untested_switch |= self.is_on_trial();
        self.silent_until = Some((requests + SILENT_REQUESTS_PER_ITEM * items, reason));
        self.wait_reason = reason;
        self.forget_evidence();
    }

    /// Takes the last switch back if a silence has ended its trial, for nothing would show what it costs.
    pub fn take_back_untested(&mut self, requests: u64, now_s: Option<u64>) -> Action {
        if !std::mem::take(&mut self.has_untested_switch) {
            return Action::None;
        }
        let nothing_counted = Window {
            requests,
            now_s,
            live_cost: 0.0,
            miniature: MissCosts::default(),
            copy: MissCosts::default(),
            candidates: &[],
        };
        let wait_reason = self.wait_reason;
        let action = self.take_back(&nothing_counted, SwitchReason::Untested);
        self.wait_reason = wait_reason;
        action
    }

    /// Takes the counts of a window that has ended.
    pub fn end_window(&mut self, window: &Window<'_>) -> Action {
        if let Some((_, reason)) = self.silent_until.filter(|(until, _)| window.requests < *until) {
            self.wait_reason = reason;
            self.forget_evidence();
            return Action::EndCopy;
        }
        self.silent_until = None;
        self.update_streaks(window);
        let failure = self.compare_with_forecast(window);
        self.note_ratio(window);
        if let Some(reason) = failure {
            return self.take_back(window, reason);
        }
        if self.is_on_trial() {
            self.wait_reason = WaitReason::OnTrial;
            return Action::None;
        }
        if self.wait_windows_left > 0 {
            self.wait_windows_left -= 1;
            self.wait_reason = WaitReason::Waiting;
            return Action::EndCopy;
        }
        self.seek_better(window)
    }

    /// Whether the last switch, if it chose a candidate, is still compared with its forecast.
    fn is_on_trial(&self) -> bool {
        self.current != 0 && self.trial.windows < TRIAL_WINDOWS
    }

    fn forget_evidence(&mut self) {
        self.streaks.fill(0);
        self.rehearsal = None;
        self.ratios.clear();
        self.trial = Trial::ended(TRIAL_WINDOWS);
    }

    fn update_streaks(&mut self, window: &Window<'_>) {
        let total = window.miniature.total();
        let candidates = self.streaks.iter_mut().zip(window.candidates).enumerate();
        for (index, (streak, candidate)) in candidates {
            let (gain, error) = window.miniature.gain_of(candidate);
            let is_better = index != self.current && gain > margin(total, error);
            *streak = if is_better { *streak + 1 } else { 0 };
        }
    }

    /// Notes how the cache's cost compares with that of its miniature, unless a forecast relies on it.
    fn note_ratio(&mut self, window: &Window<'_>) {
        let miniature_cost = window.miniature.total();
        if miniature_cost > 0.0 && !self.is_on_trial() {
            self.ratios.push_back(window.live_cost / miniature_cost);
            if self.ratios.len() > RATIOS_KEPT {
                self.ratios.pop_front();
            }
        }
    }

    /// The mean ratio of the cache to its miniature, and its deviation.
    fn ratio(&self) -> (f64, f64) {
        let count = self.ratios.len().max(1) as f64;
        let mean = self.ratios.iter().sum::<f64>() / count;
        let squares: f64 = self.ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
        (mean, (squares / (count - 1.0).max(1.0)).sqrt())
    }

    /// Compares the cache with the forecast of its last switch, and with the default; the reason to take the switch
    /// back, if there is one.
    fn compare_with_forecast(&mut self, window: &Window<'_>) -> Option<SwitchReason> {
        if self.current == 0 {
            return None;
        }
        let (is_on_trial, (ratio, deviation)) = (self.is_on_trial(), self.ratio());
        let (record, trial) = (self.records.back_mut()?, &mut self.trial);
        trial.windows += 1;
        // On trial the copy has kept the old settings; later only the default is left to compare with.
        let before = if is_on_trial { &window.copy } else { window.candidates.first()? };
        let (gain, error) = before.gain_of(&window.miniature);
        if trial.windows > SETTLING_WINDOWS {
            trial.count_margins(-gain / margin(before.total(), error).max(1.0));
        }
        if is_on_trial {
            let cost_before = before.total() * ratio;
            trial.cost_before += cost_before;
            trial.cost_now += window.live_cost;
            let gain = 1.0 - trial.cost_now / trial.cost_before.max(1.0);
            record.came = Outcome { windows: trial.windows, gain };
            let forecast = cost_before * (1.0 - record.expected + trial.error);
            let by_chance = (forecast * window.miniature.dispersion()).sqrt();
            let error = by_chance.hypot(before.total() * deviation);
            let is_above = window.live_cost > forecast + ERRORS_MIN * error;
            trial.windows_above_forecast =
                if is_above { trial.windows_above_forecast + 1 } else { 0 };
        }
        if trial.windows_above_forecast >= WINDOWS_IN_A_ROW {
            Some(SwitchReason::ForecastMissed)
        } else {
            trial.has_lost_too_much().then_some(SwitchReason::BeforeBetter)
        }
    }

    /// Returns to the settings before, after the trial to the default, and waits longer if the switch did not pay for
    /// itself.
    fn take_back(&mut self, window: &Window<'_>, reason: SwitchReason) -> Action {
        let has_gained = self.trial.cost_now < self.trial.cost_before;
        let is_on_trial = self.is_on_trial();
        let Some(record) = self.records.back_mut() else {
            return Action::None;
        };
        record.is_undone = true;
        self.undo_count += 1;
        let settings_before = if is_on_trial { record.from } else { 0 };
        self.wait_windows_left = self.wait_windows;
        if reason == SwitchReason::ForecastMissed || !has_gained {
            self.wait_windows = (self.wait_windows * 2).min(WAIT_WINDOWS.1);
        } else {
            self.wait_windows = WAIT_WINDOWS.0;
        }
        self.switch(window, settings_before, reason, &Gains::default())
    }

    /// Rehearses the candidate that is better, and switches to it once it has been better for long enough.
    fn seek_better(&mut self, window: &Window<'_>) -> Action {
        if let Some(action) = self.continue_rehearsal(window) {
            return action;
        }
        let gain = |&(_, candidate): &(usize, &MissCosts)| -candidate.total();
        let candidates = window.candidates.iter().enumerate();
        let better: Vec<_> = candidates.filter(|(index, _)| self.streak(*index) > 0).collect();
        let is_new =
            |&&(index, _): &&(usize, _)| !self.rehearsed.get(index).is_some_and(|done| *done);
        let best = better.iter().filter(is_new).max_by(|a, b| gain(a).total_cmp(&gain(b)));
        let Some(&(candidate, _)) = best else {
            self.rehearsed.fill(false);
            self.wait_reason =
                if better.is_empty() { WaitReason::NothingBetter } else { WaitReason::Rehearsing };
            return Action::EndCopy;
        };
        self.wait_reason = WaitReason::NotLongEnough;
        self.rehearsal = Some(Rehearsal { candidate, gains: Gains::default() });
        Action::Rehearse(candidate)
    }

    fn streak(&self, candidate: usize) -> u32 {
        self.streaks.get(candidate).copied().unwrap_or(0)
    }

    /// Counts a window of a rehearsal; `None` if there is none, or it has ended without a switch.
    fn continue_rehearsal(&mut self, window: &Window<'_>) -> Option<Action> {
        let mut rehearsal = self.rehearsal.take()?;
        let streak = self.streak(rehearsal.candidate);
        if streak == 0 {
            return None;
        }
        let (gain, error) = window.miniature.gain_of(&window.copy);
        let gains = &mut rehearsal.gains;
        gains.add(window.miniature.total(), gain, error);
        if streak >= WINDOWS_IN_A_ROW && gains.windows >= REHEARSAL_WINDOWS.0 && gains.is_certain()
        {
            return Some(self.switch(window, rehearsal.candidate, SwitchReason::Better, gains));
        }
        let brings_nothing = gains.windows >= REHEARSAL_WINDOWS.0 && gains.gain <= 0.0;
        if brings_nothing || gains.windows >= REHEARSAL_WINDOWS.1 {
            if let Some(is_rehearsed) = self.rehearsed.get_mut(rehearsal.candidate) {
                *is_rehearsed = true;
            }
            return None;
        }
        self.wait_reason = if streak >= WINDOWS_IN_A_ROW {
            WaitReason::Rehearsing
        } else {
            WaitReason::NotLongEnough
        };
        self.rehearsal = Some(rehearsal);
        Some(Action::None)
    }

    /// How far what came was from the last forecasts: the root of the mean square, 0 if none was checked.
    fn forecast_deviation(&self) -> f64 {
        let checked = self.records.iter().rev().filter_map(|record| {
            let ((expected, _), came) = record.forecast().zip(record.came_gain())?;
            Some((came - expected).powi(2))
        });
        let squares: Vec<f64> = checked.take(CHECKED_FORECASTS).collect();
        (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
    }

    fn switch(
        &mut self,
        window: &Window<'_>,
        to: usize,
        reason: SwitchReason,
        gains: &Gains,
    ) -> Action {
        let rehearsal_error = gains.interval();
        let error = rehearsal_error.max(2.0 * self.forecast_deviation());
        if self.records.len() == RECORDS_MAX {
            self.records.pop_front();
        }
        self.records.push_back(SwitchRecord {
            requests: window.requests,
            now_s: window.now_s,
            from: self.current,
            to,
            reason,
            expected: gains.share(),
            error,
            came: Outcome::default(),
            is_undone: false,
        });
        self.switch_count += 1;
        self.current = to;
        self.trial = Trial::new(rehearsal_error);
        self.rehearsal = None;
        self.rehearsed.fill(false);
        self.streaks.fill(0);
        self.wait_reason = WaitReason::OnTrial;
        Action::Switch(to)
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::KEY_GROUPS;
    use super::*;

    /// So many misses in every group, each of which costs so much.
    fn costs(misses: u64, cost: u64) -> MissCosts {
        let mut costs = MissCosts::default();
        for group in 0..KEY_GROUPS {
            (0..misses).for_each(|_| costs.add(group, cost));
        }
        costs
    }

    /// Two candidates, each window of which costs so much, and the action of each window.
    struct Run {
        controller: Controller,
        requests: u64,
        cost_of_miss: u64,
    }

    impl Run {
        fn new() -> Self {
            Self { controller: Controller::new(2), requests: 0, cost_of_miss: 1 }
        }

        /// A window in which the default and the other candidate cost so much, and the cache as its settings say times
        /// `live_factor`.
        fn window(&mut self, default: u64, other: u64, live_factor: f64) -> Action {
            let by_candidate = [default, other].map(|misses| costs(misses, self.cost_of_miss));
            let current = self.controller.current();
            self.requests += 4000;
            self.controller.end_window(&Window {
                requests: self.requests,
                now_s: None,
                live_cost: by_candidate[current].total() * live_factor,
                miniature: by_candidate[current],
                // A rehearsal or what is compared with: the other of the two.
                copy: by_candidate[1 - current],
                candidates: &by_candidate,
            })
        }

        fn switch_window(&mut self, default: u64, other: u64) -> Option<usize> {
            (1..=40).find(|_| matches!(self.window(default, other, 1.0), Action::Switch(_)))
        }
    }

    #[test]
    fn a_certain_gain_in_four_windows_in_a_row_switches_once() {
        let mut run = Run::new();
        assert_eq!(run.window(100, 90, 1.0), Action::Rehearse(1));
        assert_eq!(run.controller.wait_reason(), WaitReason::NotLongEnough);
        assert_eq!(run.switch_window(100, 90), Some(3));
        for _ in 0..50 {
            assert_eq!(run.switch_window(100, 90), None);
        }
        let record = *run.controller.records().next().unwrap();
        assert!((record.expected - 0.1).abs() < 1e-9, "{record:?}");
        assert_eq!((record.is_forecast_met(), record.is_undone), (Some(true), false));
    }

    #[test]
    fn gains_below_one_per_cent_or_with_interruptions_change_nothing() {
        let mut run = Run::new();
        assert_eq!(run.switch_window(1000, 991), None);
        for _ in 0..20 {
            for other in [90, 90, 90, 100] {
                assert!(!matches!(run.window(100, other, 1.0), Action::Switch(_)));
            }
        }
    }

    #[test]
    fn a_forecast_that_is_missed_is_taken_back_and_the_wait_doubles() {
        let mut run = Run::new();
        let mut waits = Vec::new();
        for _ in 0..6 {
            let until_switch = run.switch_window(100, 50).or_else(|| run.switch_window(100, 50));
            assert!(until_switch.is_some());
            // The cache costs twice what its miniature does: no gain came.
            let undone = (1..=8).find(|_| run.window(100, 50, 2.0) == Action::Switch(0));
            assert_eq!(undone, Some(4));
            let wait = (0..200).take_while(|_| {
                run.window(100, 50, 1.0);
                run.controller.wait_reason() == WaitReason::Waiting
            });
            waits.push(wait.count());
        }
        assert_eq!(waits, [4, 8, 16, 32, 64, 64]);
        assert!(run.controller.records().filter(|record| record.is_undone).count() == 6);
        assert_eq!((run.controller.switch_count(), run.controller.undo_count()), (12, 6));
        // Half of the misses were to be avoided each time, and none were: the next forecasts say so.
        let errors: Vec<_> = run.controller.records().filter_map(SwitchRecord::forecast).collect();
        assert!(errors[0].1 < 0.05, "{errors:?}");
        assert!(errors[1..].iter().all(|(expected, error)| error > expected), "{errors:?}");
    }

    #[test]
    fn a_change_of_the_load_returns_to_the_default_at_once() {
        let mut run = Run::new();
        assert!(run.switch_window(100, 50).is_some());
        for _ in 0..20 {
            run.window(100, 95, 1.0);
        }
        let returned = (1..=8).find(|_| run.window(100, 180, 1.0) == Action::Switch(0));
        assert_eq!(returned, Some(1));
    }

    #[test]
    fn what_a_miss_costs_changes_no_decision_where_it_is_the_same_for_all() {
        let actions = |cost_of_miss: u64| {
            let mut run = Run { cost_of_miss, ..Run::new() };
            let live_factor = |window: u64| if window.is_multiple_of(3) { 1.4 } else { 1.0 };
            let other = |window: u64| if (window / 30).is_multiple_of(2) { 6 } else { 11 };
            (0..200).map(|window| run.window(10, other(window), live_factor(window))).collect()
        };
        let of_one: Vec<Action> = actions(1);
        assert!(of_one.iter().any(|action| matches!(action, Action::Switch(1))));
        assert_eq!(of_one, actions(20_000));
    }

    #[test]
    fn a_switch_whose_trial_is_ended_by_a_silence_is_taken_back_once() {
        let mut run = Run::new();
        assert!(run.switch_window(100, 50).is_some());
        assert_eq!(run.controller.take_back_untested(run.requests, None), Action::None);
        run.controller.be_silent(run.requests, 4000, WaitReason::TooFewItems);
        let take_back = |run: &mut Run| run.controller.take_back_untested(run.requests, None);
        assert_eq!([take_back(&mut run), take_back(&mut run)], [Action::Switch(0), Action::None]);
        assert_eq!(run.controller.wait_reason(), WaitReason::TooFewItems);
        let reasons: Vec<_> = run.controller.records().map(|record| record.reason).collect();
        assert_eq!(reasons, [SwitchReason::Better, SwitchReason::Untested]);
        assert!(run.controller.records().next().unwrap().is_undone);
        // A switch that has completed its trial stays.
        let mut run = Run::new();
        assert!(run.switch_window(100, 50).is_some());
        for _ in 0..TRIAL_WINDOWS {
            run.window(100, 50, 1.0);
        }
        run.controller.be_silent(run.requests, 4000, WaitReason::Disturbed);
        assert_eq!(take_back(&mut run), Action::None);
    }

    #[test]
    fn nothing_is_decided_shortly_after_a_disturbance() {
        let mut run = Run::new();
        for _ in 0..20 {
            run.controller.be_silent(run.requests, 4000, WaitReason::Disturbed);
            assert_eq!(run.window(100, 50, 1.0), Action::EndCopy);
            assert_eq!(run.controller.wait_reason(), WaitReason::Disturbed);
        }
    }

    #[test]
    fn counts_of_nothing_and_more_records_than_are_kept_are_harmless() {
        let mut run = Run::new();
        for window in 0..20_000 {
            let (default, other) = if window / 40 % 2 == 0 { (0, 0) } else { (100, 1) };
            run.window(default, other, if window % 3 == 0 { 3.0 } else { 1.0 });
        }
        assert!(run.controller.records().count() <= RECORDS_MAX);
    }
}
