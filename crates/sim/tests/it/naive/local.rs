//! The local caches of the naive simulator, with the lists of their definitions.

/// A local cache as lists.
pub(super) enum NaiveLocalCache {
    None,
    Lru { capacity: usize, newest_last: Vec<u32> },
    LruBytes { capacity: u64, newest_last: Vec<(u32, u64)> },
    S3Fifo { capacity: usize, small: Vec<(u32, u32)>, main: Vec<(u32, u32)>, ghost: Vec<u32> },
}

impl NaiveLocalCache {
    pub(super) fn new(term: &str) -> Self {
        match term.split_once(':') {
            Some(("lru", capacity_text)) => {
                Self::Lru { capacity: capacity_text.parse().unwrap(), newest_last: vec![] }
            }
            Some(("lru-bytes", capacity_text)) => {
                Self::LruBytes { capacity: capacity_text.parse().unwrap(), newest_last: vec![] }
            }
            Some(("s3fifo", capacity_text)) => Self::S3Fifo {
                capacity: capacity_text.parse().unwrap(),
                small: vec![],
                main: vec![],
                ghost: vec![],
            },
            _ => Self::None,
        }
    }

    pub(super) fn contains(&self, item: u32) -> bool {
        match self {
            Self::None => false,
            Self::Lru { newest_last, .. } => newest_last.contains(&item),
            Self::LruBytes { newest_last, .. } => {
                newest_last.iter().any(|&(cached_item, _)| cached_item == item)
            }
            Self::S3Fifo { small, main, .. } => {
                small.iter().chain(main).any(|&(cached_item, _)| cached_item == item)
            }
        }
    }

    pub(super) fn look_up(&mut self, item: u32) -> bool {
        let is_hit = self.contains(item);
        if is_hit {
            match self {
                Self::None => {}
                Self::Lru { newest_last, .. } => {
                    newest_last.retain(|&other_item| other_item != item);
                    newest_last.push(item);
                }
                Self::LruBytes { newest_last, .. } => {
                    let index = newest_last
                        .iter()
                        .position(|&(cached_item, _)| cached_item == item)
                        .unwrap();
                    let entry = newest_last.remove(index);
                    newest_last.push(entry);
                }
                Self::S3Fifo { small, main, .. } => {
                    for (cached_item, uses) in small.iter_mut().chain(main) {
                        if *cached_item == item {
                            *uses = (*uses + 1).min(3);
                        }
                    }
                }
            }
        }
        is_hit
    }

    pub(super) fn insert(&mut self, item: u32, size: u32) {
        match self {
            Self::None => {}
            Self::Lru { capacity, newest_last } => {
                newest_last.push(item);
                if newest_last.len() > *capacity {
                    newest_last.remove(0);
                }
            }
            Self::LruBytes { capacity, newest_last } => {
                let bytes = u64::from(size.max(1));
                if bytes <= *capacity {
                    newest_last.push((item, bytes));
                    while newest_last.iter().map(|&(_, cached_bytes)| cached_bytes).sum::<u64>()
                        > *capacity
                    {
                        newest_last.remove(0);
                    }
                }
            }
            Self::S3Fifo { capacity, small, main, ghost } => {
                if *capacity > 0 {
                    insert_into_s3fifo(item, *capacity, small, main, ghost);
                }
            }
        }
    }
}

fn insert_into_s3fifo(
    item: u32,
    capacity: usize,
    small: &mut Vec<(u32, u32)>,
    main: &mut Vec<(u32, u32)>,
    ghost: &mut Vec<u32>,
) {
    let small_capacity = (capacity / 10).max(1);
    let was_ghost = ghost.contains(&item);
    ghost.retain(|&other_item| other_item != item);
    while small.len() + main.len() == capacity {
        if small.len() >= small_capacity || main.is_empty() {
            let (other_item, uses) = small.remove(0);
            if uses >= 2 {
                main.push((other_item, 0));
            } else {
                ghost.push(other_item);
                if ghost.len() > capacity - small_capacity {
                    ghost.remove(0);
                }
            }
        } else {
            let (other_item, uses) = main.remove(0);
            if uses > 0 {
                main.push((other_item, uses - 1));
            }
        }
    }
    if was_ghost {
        main.push((item, 0));
    } else {
        small.push((item, 0));
    }
}
