//! The parts of a bulk call: what goes to one server in one request.

use super::Failures;
use super::asking::{Ask, Ended};
use crate::request::Request;

/// Things of a bulk call that go to one server together.
#[derive(Debug)]
pub struct Part {
    /// The server's place.
    pub place: usize,
    /// Places of the things in the call.
    pub indices: Vec<usize>,
    weight: usize,
}

impl Part {
    /// A part that takes no more things.
    pub(super) fn full(place: usize, index: usize) -> Self {
        Self {
            place,
            indices: vec![index],
            weight: usize::MAX,
        }
    }
}

/// A call about many things, partitioned by server.
pub trait Partitioned {
    /// What a request is made of: keys, or items.
    type Thing<'a>: Copy;

    /// The parts, of which each is a request.
    fn parts(&self) -> &[Part];

    /// The request of a part, by its things.
    fn request<'a>(&'a self, part: usize, things: &'a [Self::Thing<'a>]) -> Request<'a>;

    /// The requests of all parts, each with the place of its server; `things` are those of each part.
    fn asks<'a>(&'a self, things: &'a [Vec<Self::Thing<'a>>]) -> Vec<Ask<'a>> {
        let parts = self.parts().iter().zip(things).enumerate();
        parts
            .map(|(at, (part, things))| (part.place, [self.request(at, things)]))
            .collect()
    }

    /// The things of each part.
    fn all_things<'a>(&self, all: &[Self::Thing<'a>]) -> Vec<Vec<Self::Thing<'a>>> {
        let things = |part: &Part| {
            if part.indices.len() == all.len() {
                return all.to_vec();
            }
            let mut things = Vec::with_capacity(part.indices.len());
            things.extend(part.indices.iter().filter_map(|&index| all.get(index)));
            things
        };
        self.parts().iter().map(things).collect()
    }

    /// The things that got no answer.
    fn unanswered(&self, ended: &[Ended]) -> Failures {
        let failed = self.parts().iter().zip(ended);
        failed
            .flat_map(|(part, end)| end.unanswered(&part.indices))
            .collect()
    }
}

/// Adds a thing to the parts: to one of its place, unless that would weigh more than `weight_max`.
pub(super) fn add(
    parts: &mut Vec<Part>,
    index: usize,
    place: usize,
    weight: usize,
    weight_max: usize,
) {
    let mut of_place = parts.iter_mut().rev().filter(|part| part.place == place);
    match of_place.find(|part| part.weight.saturating_add(weight) <= weight_max) {
        Some(part) => {
            part.indices.push(index);
            part.weight += weight;
        }
        None => parts.push(Part {
            place,
            indices: vec![index],
            weight,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_holds_one_servers_things_up_to_its_weight() {
        let mut parts = Vec::new();
        for (index, weight) in [3, 3, 3, 9, 1].into_iter().enumerate() {
            add(&mut parts, index, usize::from(weight == 1), weight, 6);
        }
        let shape: Vec<_> = parts.iter().map(|p| (p.place, p.indices.clone())).collect();
        assert_eq!(
            shape,
            [(0, vec![0, 1]), (0, vec![2]), (0, vec![3]), (1, vec![4])]
        );
    }
}
