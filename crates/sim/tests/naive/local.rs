//! The local caches of the naive simulator, with the lists of their definitions.

/// A local cache as lists.
pub(super) enum Local {
    None,
    Lru {
        capacity: usize,
        newest_last: Vec<u32>,
    },
    LruBytes {
        capacity: u64,
        newest_last: Vec<(u32, u64)>,
    },
    S3Fifo {
        capacity: usize,
        small: Vec<(u32, u32)>,
        main: Vec<(u32, u32)>,
        ghost: Vec<u32>,
    },
}

impl Local {
    pub(super) fn new(term: &str) -> Self {
        match term.split_once(':') {
            Some(("lru", n)) => Self::Lru {
                capacity: n.parse().unwrap(),
                newest_last: vec![],
            },
            Some(("lru-bytes", n)) => Self::LruBytes {
                capacity: n.parse().unwrap(),
                newest_last: vec![],
            },
            Some(("s3fifo", n)) => Self::S3Fifo {
                capacity: n.parse().unwrap(),
                small: vec![],
                main: vec![],
                ghost: vec![],
            },
            _ => Self::None,
        }
    }

    pub(super) fn has(&self, x: u32) -> bool {
        match self {
            Self::None => false,
            Self::Lru { newest_last, .. } => newest_last.contains(&x),
            Self::LruBytes { newest_last, .. } => newest_last.iter().any(|e| e.0 == x),
            Self::S3Fifo { small, main, .. } => small.iter().chain(main).any(|e| e.0 == x),
        }
    }

    pub(super) fn look_up(&mut self, x: u32) -> bool {
        let had = self.has(x);
        if had {
            match self {
                Self::None => {}
                Self::Lru { newest_last, .. } => {
                    newest_last.retain(|&y| y != x);
                    newest_last.push(x);
                }
                Self::LruBytes { newest_last, .. } => {
                    let at = newest_last.iter().position(|e| e.0 == x).unwrap();
                    let entry = newest_last.remove(at);
                    newest_last.push(entry);
                }
                Self::S3Fifo { small, main, .. } => {
                    for e in small.iter_mut().chain(main).filter(|e| e.0 == x) {
                        e.1 = (e.1 + 1).min(3);
                    }
                }
            }
        }
        had
    }

    pub(super) fn insert(&mut self, x: u32, size: u32) {
        match self {
            Self::None => {}
            Self::Lru {
                capacity,
                newest_last,
            } => {
                newest_last.push(x);
                if newest_last.len() > *capacity {
                    newest_last.remove(0);
                }
            }
            Self::LruBytes {
                capacity,
                newest_last,
            } => {
                let bytes = u64::from(size.max(1));
                if bytes <= *capacity {
                    newest_last.push((x, bytes));
                    while newest_last.iter().map(|e| e.1).sum::<u64>() > *capacity {
                        newest_last.remove(0);
                    }
                }
            }
            Self::S3Fifo {
                capacity,
                small,
                main,
                ghost,
            } => {
                if *capacity > 0 {
                    insert_s3fifo(x, *capacity, small, main, ghost);
                }
            }
        }
    }
}

fn insert_s3fifo(
    x: u32,
    capacity: usize,
    small: &mut Vec<(u32, u32)>,
    main: &mut Vec<(u32, u32)>,
    ghost: &mut Vec<u32>,
) {
    let share = (capacity / 10).max(1);
    let was_ghost = ghost.contains(&x);
    ghost.retain(|&y| y != x);
    while small.len() + main.len() == capacity {
        if small.len() >= share || main.is_empty() {
            let (y, uses) = small.remove(0);
            if uses >= 2 {
                main.push((y, 0));
            } else {
                ghost.push(y);
                if ghost.len() > capacity - share {
                    ghost.remove(0);
                }
            }
        } else {
            let (y, uses) = main.remove(0);
            if uses > 0 {
                main.push((y, uses - 1));
            }
        }
    }
    if was_ghost {
        main.push((x, 0));
    } else {
        small.push((x, 0));
    }
}
