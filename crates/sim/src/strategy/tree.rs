//! The children of each item, computed by inverting the parent column of a request log.

use crate::trace::log::NONE;

/// Children of every item in ascending order, in one flat list.
#[derive(Debug, Clone)]
pub struct Tree {
    starts: Vec<u32>,
    children: Vec<u32>,
}

impl Tree {
    /// Inverts a column of parents; the reader of the log has already refused cycles and unknown parents.
    pub fn new(parents: &[u32]) -> Self {
        let mut starts = vec![0u32; parents.len() + 1];
        for &parent in parents.iter().filter(|&&parent| parent != NONE) {
            starts[parent as usize + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next_child_index = starts.clone();
        let mut children = vec![0; starts[parents.len()] as usize];
        for (item, &parent) in parents.iter().enumerate().filter(|&(_, &parent)| parent != NONE) {
            children[next_child_index[parent as usize] as usize] = item as u32;
            next_child_index[parent as usize] += 1;
        }
        Self { starts, children }
    }

    /// The children of an item, ascending.
    pub fn children(&self, item: u32) -> &[u32] {
        let item = item as usize;
        &self.children[self.starts[item] as usize..self.starts[item + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_in_ascending_order() {
        let tree = Tree::new(&[NONE, 0, 0, 1, 0]);
        assert_eq!(tree.children(0), [1, 2, 4]);
        assert_eq!(tree.children(1), [3]);
        assert!(tree.children(4).is_empty());
    }
}
