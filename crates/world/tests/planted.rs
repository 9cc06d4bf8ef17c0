//! The checker finds each promise that a server or a driver is made to break.

use glasscache_world::{Plan, Promise, Sabotage, plan, simulate};

/// Seeds among which a planted fault must be found.
const SEEDS: u64 = 400;

/// The promises that are broken in worlds with `sabotage`, until one of `expected` is.
fn is_found(sabotage: Sabotage, expected: &[Promise]) -> bool {
    (0..SEEDS).any(|seed| {
        let plan = Plan {
            sabotage: Some(sabotage),
            ..plan(seed)
        };
        let violation = simulate(&plan, false).violation;
        violation.is_some_and(|violation| expected.contains(&violation.promise))
    })
}

#[test]
fn each_planted_fault_is_found_as_what_it_is() {
    let planted: [(Sabotage, &[Promise]); 17] = [
        (Sabotage::ChangesValues, &[Promise::Value]),
        (Sabotage::SendsOldValues, &[Promise::Fresh]),
        (Sabotage::StopsItsClock, &[Promise::Expiry]),
        (Sabotage::KeepsTooMuch, &[Promise::Memory]),
        (Sabotage::RepeatsAdditions, &[Promise::Addition]),
        (Sabotage::ComparesNothing, &[Promise::Compare]),
        (Sabotage::MixesReplies, &[Promise::Reply]),
        (Sabotage::DeniesWrites, &[Promise::Undone]),
        (Sabotage::EndsTwice, &[Promise::Once]),
        (Sabotage::IgnoresDeadlines, &[Promise::Deadline]),
        (Sabotage::KeepsUnread, &[Promise::InSync]),
        (Sabotage::NeverCloses, &[Promise::Closed]),
        (Sabotage::ForgetsQuiet, &[Promise::Quiet]),
        (Sabotage::ForgetsUncertain, &[Promise::Fresh]),
        (Sabotage::NeverProbes, &[Promise::Recovery]),
        (Sabotage::KeepsParents, &[Promise::Fork]),
        (Sabotage::Panics, &[Promise::Panic]),
    ];
    let missed: Vec<_> = planted
        .iter()
        .filter(|(sabotage, expected)| !is_found(*sabotage, expected))
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_short_history_is_found_and_breaks_the_same_promise() {
    let sabotage = Some(Sabotage::ChangesValues);
    let broken = (0..SEEDS).find_map(|seed| {
        let plan = Plan {
            sabotage,
            ..plan(seed)
        };
        simulate(&plan, false)
            .violation
            .map(|violation| (plan, violation))
    });
    let (plan, violation) = broken.expect("one of these worlds has a hit");
    let history = glasscache_world::history(&plan, &violation);
    let last = history.lines().last().unwrap_or_default();
    assert!(last.starts_with("Value: "), "{history}");
    let steps = history.split(" are left").next().unwrap_or_default();
    let left: usize = steps
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .parse()
        .expect("a number");
    assert!(left <= 3, "{history}");
}
