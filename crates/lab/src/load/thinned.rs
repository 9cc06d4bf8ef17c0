//! A bounded record of a stream: every n-th element, where n doubles whenever the record is full.
//!
//! Order is kept, so the record of a run still shows its warm-up and its drift; memory does not grow with its length.

/// Every n-th element of a stream.
#[derive(Debug, Clone)]
pub(crate) struct ThinnedSamples<T> {
    elements: Vec<T>,
    stride: u64,
    elements_seen: u64,
    capacity: usize,
}

impl<T: Copy> ThinnedSamples<T> {
    /// An empty record that keeps at most `capacity` elements, which must be at least 2.
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { elements: Vec::new(), stride: 1, elements_seen: 0, capacity }
    }

    /// Adds the next element of the stream.
    pub(crate) fn push(&mut self, element: T) {
        if self.elements_seen.is_multiple_of(self.stride) {
            if self.elements.len() == self.capacity {
                self.thin();
            }
            // Thinning may have made this element one between two kept ones.
            if self.elements_seen.is_multiple_of(self.stride) {
                self.elements.push(element);
            }
        }
        self.elements_seen += 1;
    }

    fn thin(&mut self) {
        let mut index = 0;
        self.elements.retain(|_| {
            index += 1;
            index % 2 == 1
        });
        self.stride *= 2;
    }

    /// The kept elements, in the order of the stream.
    pub(crate) fn elements(&self) -> &[T] {
        &self.elements
    }

    /// Elements of the stream so far.
    pub(crate) const fn elements_seen(&self) -> u64 {
        self.elements_seen
    }

    /// One element in this many is kept.
    pub(crate) const fn stride(&self) -> u64 {
        self.stride
    }

    /// Adds the record of another stream, thinning the denser one; `sort_key` puts the elements in one order.
    pub(crate) fn merge<K: Ord>(&mut self, other: &Self, sort_key: impl Fn(&T) -> K) {
        let mut other = other.clone();
        while self.stride < other.stride {
            self.thin();
        }
        while other.stride < self.stride {
            other.thin();
        }
        self.elements.extend(other.elements);
        self.elements.sort_by_key(sort_key);
        self.elements_seen += other.elements_seen;
        self.capacity += other.capacity;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_every_nth_element_within_its_capacity() {
        let mut record = ThinnedSamples::new(100);
        for number in 0..10_000_u64 {
            record.push(number);
        }
        let stride = record.stride();
        assert!(record.elements().len() <= 100 && record.elements().len() > 50);
        assert!(
            record
                .elements()
                .iter()
                .enumerate()
                .all(|(index, &element)| element == index as u64 * stride)
        );
    }

    #[test]
    fn merged_records_have_one_density_and_order() {
        let (mut first_record, mut second_record) =
            (ThinnedSamples::new(64), ThinnedSamples::new(64));
        (0..1_000_u64).for_each(|number| first_record.push(2 * number));
        (0..50_u64).for_each(|number| second_record.push(2 * number + 1));
        first_record.merge(&second_record, |&number| number);
        assert!(first_record.elements().is_sorted());
        assert_eq!(
            first_record.elements().iter().filter(|&number| number % 2 == 1).count(),
            50_usize.div_ceil(16)
        );
    }
}
