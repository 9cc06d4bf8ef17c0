//! A bounded record of a stream: every n-th element, where n doubles whenever the record is full.
//!
//! Order is kept, so the record of a run still shows its warm-up and its drift; memory does not grow with its length.

/// Every n-th element of a stream.
#[derive(Debug, Clone)]
pub struct Thinned<T> {
    kept: Vec<T>,
    stride: u64,
    seen: u64,
    capacity: usize,
}

impl<T: Copy> Thinned<T> {
    /// An empty record that keeps at most `capacity` elements, which must be at least 2.
    pub const fn new(capacity: usize) -> Self {
        Self {
            kept: Vec::new(),
            stride: 1,
            seen: 0,
            capacity,
        }
    }

    /// Adds the next element of the stream.
    pub fn push(&mut self, element: T) {
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == self.capacity {
                self.thin();
            }
            // Thinning may have made this element one between two kept ones.
            if self.seen.is_multiple_of(self.stride) {
                self.kept.push(element);
            }
        }
        self.seen += 1;
    }

    fn thin(&mut self) {
        let mut index = 0;
        self.kept.retain(|_| {
            index += 1;
            index % 2 == 1
        });
        self.stride *= 2;
    }

    /// The kept elements, in the order of the stream.
    pub fn kept(&self) -> &[T] {
        &self.kept
    }

    /// Elements of the stream so far.
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// One element in this many is kept.
    pub const fn stride(&self) -> u64 {
        self.stride
    }

    /// Adds the record of another stream, thinning the denser one; `order` puts the elements in one order.
    pub fn merge<K: Ord>(&mut self, other: &Self, order: impl Fn(&T) -> K) {
        let mut other = other.clone();
        while self.stride < other.stride {
            self.thin();
        }
        while other.stride < self.stride {
            other.thin();
        }
        self.kept.extend(other.kept);
        self.kept.sort_by_key(order);
        self.seen += other.seen;
        self.capacity += other.capacity;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_every_nth_element_within_its_capacity() {
        let mut record = Thinned::new(100);
        for number in 0..10_000_u64 {
            record.push(number);
        }
        let stride = record.stride();
        assert!(record.kept().len() <= 100 && record.kept().len() > 50);
        assert!(
            record
                .kept()
                .iter()
                .enumerate()
                .all(|(at, &kept)| kept == at as u64 * stride)
        );
    }

    #[test]
    fn merged_records_have_one_density_and_order() {
        let (mut a, mut b) = (Thinned::new(64), Thinned::new(64));
        (0..1_000_u64).for_each(|number| a.push(2 * number));
        (0..50_u64).for_each(|number| b.push(2 * number + 1));
        a.merge(&b, |&number| number);
        assert!(a.kept().is_sorted());
        assert_eq!(
            a.kept().iter().filter(|&number| number % 2 == 1).count(),
            50_usize.div_ceil(16)
        );
    }
}
