//! The checker finds each invariant that a server or a driver is made to break.

use glasscache_world::{Invariant, Plan, Sabotage, generate_plan, simulate};

/// Seeds among which a sabotage must be found.
const SEEDS: u64 = 400;

/// Whether a world with `sabotage` breaks one of the `expected` invariants.
fn does_checker_find(sabotage: Sabotage, expected: &[Invariant]) -> bool {
    (0..SEEDS).any(|seed| {
        let plan = Plan { sabotage: Some(sabotage), ..generate_plan(seed) };
        let violation = simulate(&plan, false).violation;
        violation.is_some_and(|violation| expected.contains(&violation.invariant))
    })
}

#[test]
fn each_sabotage_is_found_as_the_invariant_that_it_breaks() {
    let sabotages: [(Sabotage, &[Invariant]); 22] = [
        (Sabotage::ChangesValues, &[Invariant::ValueWasWritten]),
        (Sabotage::SendsOldValues, &[Invariant::ReadsAreFresh]),
        (Sabotage::StopsItsClock, &[Invariant::ExpiredItemsAreGone]),
        (Sabotage::KeepsTooMuch, &[Invariant::MemoryIsBounded]),
        (Sabotage::LosesItems, &[Invariant::CleanRestartKeepsItems]),
        (Sabotage::RepeatsAdditions, &[Invariant::AdditionsCountOnce]),
        (Sabotage::ReplacesCasBySet, &[Invariant::CasSeesChanges]),
        (Sabotage::MixesReplies, &[Invariant::RepliesAreTrue]),
        (Sabotage::HandlesValuesTwice, &[Invariant::KeyIsFoundOnce]),
        (Sabotage::DeniesWrites, &[Invariant::RefusedHasNoEffect]),
        (Sabotage::EndsTwice, &[Invariant::CallEndsOnce]),
        (Sabotage::IgnoresDeadlines, &[Invariant::CallEndsByDeadline]),
        (Sabotage::ReusesUnreadConnections, &[Invariant::ReusedConnectionIsInSync]),
        (Sabotage::NeverCloses, &[Invariant::UselessConnectionIsClosed]),
        (Sabotage::KeepsUnparsedBytes, &[Invariant::MemoryIsBounded]),
        (Sabotage::ForgetsQuietWrites, &[Invariant::QuietWriteIsCounted]),
        (Sabotage::ForgetsUncertainKeys, &[Invariant::ReadsAreFresh]),
        (Sabotage::FlushesAnotherPrefix, &[Invariant::ReadsAreFresh]),
        (Sabotage::CountsFailuresTwice, &[Invariant::DownHasACause]),
        (Sabotage::NeverProbes, &[Invariant::CallsRecover]),
        (Sabotage::KeepsParentConnections, &[Invariant::ForkLeavesParentAlone]),
        (Sabotage::Panics, &[Invariant::NothingPanics]),
    ];
    let missed: Vec<_> = sabotages
        .iter()
        .filter(|(sabotage, expected)| !does_checker_find(*sabotage, expected))
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_short_history_is_found_and_breaks_the_same_invariant() {
    let sabotage = Some(Sabotage::ChangesValues);
    let plan_and_violation = (0..SEEDS).find_map(|seed| {
        let plan = Plan { sabotage, ..generate_plan(seed) };
        simulate(&plan, false).violation.map(|violation| (plan, violation))
    });
    let (plan, violation) = plan_and_violation.expect("one of these worlds has a hit");
    let history = glasscache_world::shortest_failing_history(&plan, &violation);
    let last_line = history.lines().last().unwrap_or_default();
    assert!(last_line.starts_with("ValueWasWritten: "), "{history}");
    let text_up_to_count = history.split(" are left").next().unwrap_or_default();
    let remaining_steps: usize =
        text_up_to_count.rsplit(' ').next().unwrap_or_default().parse().expect("a number");
    assert!(remaining_steps <= 3, "{history}");
}
