//! What one request fetches: prefetch along the tree of items, and when an item is at hand.
//!
//! Sans I/O. The caller opens a request, asks for its items one by one, fetches the list it is
//! given and settles what came; nothing here waits, so the same rules serve a blocking client, an
//! event loop and the simulator. The order of steps is that of docs/reference/formats.md, section 4,
//! and decides results to the last nanosecond: change both or none.

/// What is fetched along with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Prefetch {
    /// The item alone.
    #[default]
    Nothing,
    /// Its children too, when the item itself has to be fetched.
    Children,
    /// Its children too, whether or not the item is at hand.
    ChildrenAlways,
}

/// The prefetch rules of a strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// What is fetched along with an item.
    pub prefetch: Prefetch,
    /// At the start of a request, fetch the page and its descendants down to this depth.
    pub subtree_depth: Option<u32>,
}

/// Where an item was found when it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The request asked for it before.
    Repeat,
    /// In the fixed set.
    Fixed,
    /// Fetched by this request already, ahead of need.
    Held,
    /// In the local cache.
    Local,
    /// Nowhere: it is on the list to fetch.
    Missing,
}

impl Found {
    /// Whether a fetched key is put to use here: one that this request fetched ahead, or fetches now.
    pub fn is_used_key(self) -> bool {
        matches!(self, Self::Held | Self::Missing)
    }
}

/// What the rules need to know and to change: fixed set, local cache, request scope and tree.
pub trait World {
    /// Names an item; its order is the order within a fetched list.
    type Key: Clone + Ord;

    /// Notes that this request asks for the item; false if it did before.
    fn see(&mut self, key: &Self::Key) -> bool;
    /// Whether the item is in the fixed set.
    fn is_fixed(&self, key: &Self::Key) -> bool;
    /// Whether this request holds the item.
    fn is_held(&self, key: &Self::Key) -> bool;
    /// Notes that this request holds the item.
    fn hold(&mut self, key: &Self::Key);
    /// Looks the item up in the local cache and records the use.
    fn local_get(&mut self, key: &Self::Key) -> bool;
    /// Whether the item is in the local cache; changes nothing.
    fn local_contains(&self, key: &Self::Key) -> bool;
    /// Puts the item into the local cache as the newest.
    fn local_insert(&mut self, key: &Self::Key);
    /// Appends the item's children in ascending order.
    fn children(&self, key: &Self::Key, list: &mut Vec<Self::Key>);
}

impl Rules {
    /// Begins a request about `page`: leaves in `list` what to fetch in one call, possibly nothing.
    pub fn open<W: World>(&self, world: &W, page: &W::Key, list: &mut Vec<W::Key>) {
        list.clear();
        let Some(depth) = self.subtree_depth else {
            return;
        };
        list.push(page.clone());
        world.children(page, list);
        if list.len() == 1 {
            return list.clear();
        }
        list.truncate(1);
        descend(world, depth, list);
        drop_at_hand(world, list);
    }

    /// Asks for one item: says where it was found and leaves in `list` what to fetch in one call.
    pub fn ask<W: World>(&self, world: &mut W, key: &W::Key, list: &mut Vec<W::Key>) -> Found {
        list.clear();
        if !world.see(key) {
            return Found::Repeat;
        }
        let found = find(world, key);
        let is_missing = found == Found::Missing;
        let with_children = match self.prefetch {
            Prefetch::Nothing => false,
            Prefetch::Children => is_missing,
            Prefetch::ChildrenAlways => true,
        };
        if with_children {
            list.push(key.clone());
            world.children(key, list);
            drop_at_hand(world, list);
        } else if is_missing {
            list.push(key.clone());
        }
        found
    }
}

/// Takes in what was fetched, in the order of the list.
pub fn settle<W: World>(world: &mut W, fetched: &[W::Key]) {
    for key in fetched {
        world.hold(key);
        world.local_insert(key);
    }
}

/// The local cache is asked before the request's own items, so that every use counts in its order.
fn find<W: World>(world: &mut W, key: &W::Key) -> Found {
    if world.is_fixed(key) {
        return Found::Fixed;
    }
    let is_local = world.local_get(key);
    if world.is_held(key) {
        Found::Held
    } else if is_local {
        world.hold(key);
        Found::Local
    } else {
        Found::Missing
    }
}

/// Appends level after level below the single item of `list`, each level in ascending order.
fn descend<W: World>(world: &W, depth: u32, list: &mut Vec<W::Key>) {
    let mut level = 0;
    for _ in 0..depth {
        let next = list.len();
        for index in level..next {
            let key = list[index].clone();
            world.children(&key, list);
        }
        if list.len() == next {
            return;
        }
        list[next..].sort_unstable();
        level = next;
    }
}

fn drop_at_hand<W: World>(world: &W, list: &mut Vec<W::Key>) {
    list.retain(|key| !(world.is_fixed(key) || world.is_held(key) || world.local_contains(key)));
}
