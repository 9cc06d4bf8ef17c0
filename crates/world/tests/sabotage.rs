//! The checker finds each invariant that a server or a driver is made to break.

use glasscache_world::{Invariant, Plan, Sabotage, generate_plan, simulate};

/// Seeds among which a planted fault must be found.
const SEEDS: u64 = 400;

/// Whether a world with `sabotage` breaks one of the `expected` invariants.
fn does_checker_find(sabotage: Sabotage, expected: &[Invariant]) -> bool {
    (0..SEEDS).any(|seed| {
        let plan = Plan {
            sabotage: Some(sabotage),
            ..generate_plan(seed)
        };
        let violation = simulate(&plan, false).violation;
        violation.is_some_and(|violation| expected.contains(&violation.invariant))
    })
}

#[test]
fn each_planted_fault_is_found_as_what_it_is() {
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
        (
            Sabotage::ReusesUnreadConnections,
            &[Invariant::ReusedConnectionIsInSync],
        ),
        (
            Sabotage::NeverCloses,
            &[Invariant::UselessConnectionIsClosed],
        ),
        (Sabotage::KeepsUnparsedBytes, &[Invariant::MemoryIsBounded]),
        (
            Sabotage::ForgetsQuietWrites,
            &[Invariant::QuietWriteIsCounted],
        ),
        (Sabotage::ForgetsUncertainKeys, &[Invariant::ReadsAreFresh]),
        (Sabotage::FlushesAnotherPrefix, &[Invariant::ReadsAreFresh]),
        (Sabotage::CountsFailuresTwice, &[Invariant::DownHasACause]),
        (Sabotage::NeverProbes, &[Invariant::CallsRecover]),
        (
            Sabotage::KeepsParentConnections,
            &[Invariant::ForkLeavesParentAlone],
        ),
        (Sabotage::Panics, &[Invariant::NothingPanics]),
    ];
    let missed: Vec<_> = sabotages
        .iter()
        .filter(|(sabotage, expected)| !does_checker_find(*sabotage, expected))
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_short_history_is_found_and_breaks_the_same_promise() {
    let sabotage = Some(Sabotage::ChangesValues);
    let broken = (0..SEEDS).find_map(|seed| {
        let plan = Plan {
            sabotage,
            ..generate_plan(seed)
        };
        simulate(&plan, false)
            .violation
            .map(|violation| (plan, violation))
    });
    let (plan, violation) = broken.expect("one of these worlds has a hit");
    let history = glasscache_world::shortest_failing_history(&plan, &violation);
    let last = history.lines().last().unwrap_or_default();
    assert!(last.starts_with("ValueWasWritten: "), "{history}");
    let steps = history.split(" are left").next().unwrap_or_default();
    let left: usize = steps
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .parse()
        .expect("a number");
    assert!(left <= 3, "{history}");
}
