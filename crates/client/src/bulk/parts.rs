//! The parts of a bulk call: what goes to one server in one batch.

use crate::client::Client;

/// Things of a bulk call that go to one server together.
#[derive(Debug)]
pub(crate) struct Part<T> {
    /// The server's place.
    pub(crate) place: usize,
    /// Places of the things in the call.
    pub(crate) indices: Vec<usize>,
    /// The things themselves, as long as `indices`.
    pub(crate) things: Vec<T>,
    weight: usize,
}

impl<T> Part<T> {
    /// All things of a call, for one server.
    pub(crate) fn whole(place: usize, things: Vec<T>) -> Self {
        Self {
            place,
            indices: (0..things.len()).collect(),
            weight: things.len(),
            things,
        }
    }
}

/// Parts things by the place of their server; no part weighs more than `weight_max` unless one thing does.
pub(crate) fn parted<T>(
    things: impl Iterator<Item = (usize, T)>,
    mut place_of: impl FnMut(&T) -> usize,
    weight_of: impl Fn(&T) -> usize,
    weight_max: usize,
) -> Vec<Part<T>> {
    let mut parts: Vec<Part<T>> = Vec::new();
    let expected = things.size_hint().0;
    for (index, thing) in things {
        let (place, weight) = (place_of(&thing), weight_of(&thing));
        let open = parts.iter_mut().rev().find(|part| part.place == place);
        if let Some(part) = open.filter(|part| part.weight + weight <= weight_max) {
            part.indices.push(index);
            part.things.push(thing);
            part.weight += weight;
            continue;
        }
        let room = if parts.is_empty() { expected } else { 1 };
        let mut part = Part {
            place,
            indices: Vec::with_capacity(room),
            things: Vec::with_capacity(room),
            weight,
        };
        part.indices.push(index);
        part.things.push(thing);
        parts.push(part);
    }
    parts
}

impl Client {
    /// The place of a plain key's server, the key without its namespace.
    pub(super) fn place_finder(&self) -> impl FnMut(&[u8]) -> usize {
        let only = self.only_place();
        let namespace = self.keys().namespace;
        let mut joined = namespace.to_vec();
        move |key| {
            only.unwrap_or_else(|| {
                joined.truncate(namespace.len());
                joined.extend_from_slice(key);
                self.place_of(&joined)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_holds_one_servers_things_up_to_its_weight() {
        let weights = [3, 3, 3, 9, 1];
        let parts = parted(
            weights.into_iter().enumerate(),
            |weight| usize::from(*weight == 1),
            |weight| *weight,
            6,
        );
        let shape: Vec<_> = parts.iter().map(|p| (p.place, p.indices.clone())).collect();
        assert_eq!(
            shape,
            [(0, vec![0, 1]), (0, vec![2]), (0, vec![3]), (1, vec![4])]
        );
    }
}
