//! What one request fetches: prefetching along the tree of items, and when an item is already available.
//!
//! Without I/O: the caller begins a request, looks up its items one by one, fetches the returned list
//! and stores the result; nothing here waits, so the same rules serve a blocking client, an event
//! loop and the simulator. The order of steps is that of docs/reference/formats.md, section 4, and
//! decides results to the last nanosecond: change both or none.

/// Whether the children of an item are fetched along with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ChildrenRule {
    /// They are not.
    #[default]
    Never,
    /// They are when the item itself has to be fetched.
    WhenMissing,
    /// They are even if the item is available.
    Always,
}

/// What a strategy prefetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefetchRules {
    /// Whether the children of an item are fetched along with it.
    pub children: ChildrenRule,
    /// At the start of a request, fetch the page and its descendants down to this depth.
    pub subtree_depth: Option<u32>,
    /// Fetch what learned rules name: with the page at the start of a request, and with an item that has to be fetched.
    pub fetches_companions: bool,
}

/// Where an item was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// The request has looked it up before.
    AlreadyRequested,
    /// In the fixed set.
    Fixed,
    /// Fetched by this request already, ahead of need.
    Prefetched,
    /// In the local cache.
    Local,
    /// Not found: it is on the list to fetch.
    Missing,
}

impl Location {
    /// Whether this use needs a fetched key: one that this request has prefetched or fetches now.
    pub fn uses_fetched_key(self) -> bool {
        matches!(self, Self::Prefetched | Self::Missing)
    }
}

/// What the rules read and change: fixed set, local cache, request scope and tree.
pub trait RequestContext {
    /// What identifies an item.
    type Key: Clone + Eq;

    /// Whether the process may keep the item, and fetch it ahead of need: not if it is a session
    /// ([`crate::session_keys`]), which each read fetches.
    fn may_keep(&self, key: &Self::Key) -> bool;
    /// Records that this request uses the item; false if it already did.
    fn mark_requested(&mut self, key: &Self::Key) -> bool;
    /// Whether the fixed set has a value of the item that may be used.
    fn has_fixed_value(&self, key: &Self::Key) -> bool;
    /// Whether the item is in the scope of this request.
    fn scope_contains(&self, key: &Self::Key) -> bool;
    /// Puts the item into the scope of this request.
    fn scope_insert(&mut self, key: &Self::Key);
    /// Whether the local cache has the item, whose use it records.
    fn use_local_value(&mut self, key: &Self::Key) -> bool;
    /// Whether the item is in the local cache; changes nothing.
    fn local_contains(&self, key: &Self::Key) -> bool;
    /// Keeps the item in the process: in the fixed set if it belongs there, else in the local cache as the newest.
    fn near_insert(&mut self, key: &Self::Key);
    /// Appends the item's children in ascending order.
    fn children(&self, key: &Self::Key, fetch_list: &mut Vec<Self::Key>);
    /// Sorts one level of a subtree in ascending order.
    fn sort_level(&self, level: &mut [Self::Key]);
    /// Appends what learned rules fetch with the item, each once.
    fn companions(&self, key: &Self::Key, fetch_list: &mut Vec<Self::Key>);
    /// Appends what learned rules fetch at the start of a request about the page, each once.
    fn page_companions(&self, page: &Self::Key, fetch_list: &mut Vec<Self::Key>);
}

impl PrefetchRules {
    /// Begins a request about `page`: leaves in `fetch_list` what to fetch in one call, possibly nothing.
    pub fn begin_request<C: RequestContext>(
        &self,
        context: &C,
        page: &C::Key,
        fetch_list: &mut Vec<C::Key>,
    ) {
        fetch_list.clear();
        if let Some(depth) = self.subtree_depth {
            fetch_list.push(page.clone());
            context.children(page, fetch_list);
            if fetch_list.len() == 1 {
                fetch_list.clear();
            } else {
                fetch_list.truncate(1);
                append_descendants(context, depth, fetch_list);
            }
        }
        if self.fetches_companions {
            append_new(fetch_list, |fetch_list| {
                context.page_companions(page, fetch_list);
            });
        }
        drop_available(context, fetch_list);
    }

    /// Looks up one item: returns where it was found and leaves in `fetch_list` what to fetch in one call.
    pub fn look_up<C: RequestContext>(
        &self,
        context: &mut C,
        key: &C::Key,
        fetch_list: &mut Vec<C::Key>,
    ) -> Location {
        fetch_list.clear();
        if !context.may_keep(key) {
            fetch_list.push(key.clone());
            return Location::Missing;
        }
        if !context.mark_requested(key) {
            return Location::AlreadyRequested;
        }
        let location = locate(context, key);
        let is_missing = location == Location::Missing;
        let fetches_children = match self.children {
            ChildrenRule::Never => false,
            ChildrenRule::WhenMissing => is_missing,
            ChildrenRule::Always => true,
        };
        if fetches_children {
            fetch_list.push(key.clone());
            context.children(key, fetch_list);
            drop_available(context, fetch_list);
        } else if is_missing {
            fetch_list.push(key.clone());
        }
        if self.fetches_companions && is_missing {
            let len_without_companions = fetch_list.len();
            append_new(fetch_list, |fetch_list| context.companions(key, fetch_list));
            if fetch_list.len() > len_without_companions {
                drop_available(context, fetch_list);
            }
        }
        location
    }
}

/// Stores the fetched items, in the order of the list.
pub fn store_fetched<C: RequestContext>(context: &mut C, fetched: &[C::Key]) {
    for key in fetched {
        if context.may_keep(key) {
            context.scope_insert(key);
            context.near_insert(key);
        }
    }
}

/// The local cache is searched before the request's own items, so that every use updates its order.
fn locate<C: RequestContext>(context: &mut C, key: &C::Key) -> Location {
    if context.has_fixed_value(key) {
        return Location::Fixed;
    }
    let is_local = context.use_local_value(key);
    if context.scope_contains(key) {
        Location::Prefetched
    } else if is_local {
        context.scope_insert(key);
        Location::Local
    } else {
        Location::Missing
    }
}

/// Appends level after level below the single item of `fetch_list`, each level in ascending order.
fn append_descendants<C: RequestContext>(context: &C, depth: u32, fetch_list: &mut Vec<C::Key>) {
    let mut level_start = 0;
    for _ in 0..depth {
        let level_end = fetch_list.len();
        for index in level_start..level_end {
            let key = fetch_list[index].clone();
            context.children(&key, fetch_list);
        }
        if fetch_list.len() == level_end {
            return;
        }
        context.sort_level(&mut fetch_list[level_end..]);
        level_start = level_end;
    }
}

/// Appends what `append` does, without what is on the list already.
fn append_new<K: Eq>(fetch_list: &mut Vec<K>, append: impl FnOnce(&mut Vec<K>)) {
    let old_len = fetch_list.len();
    append(fetch_list);
    let mut kept_len = old_len;
    for index in old_len..fetch_list.len() {
        if !fetch_list[..old_len].contains(&fetch_list[index]) {
            fetch_list.swap(kept_len, index);
            kept_len += 1;
        }
    }
    fetch_list.truncate(kept_len);
}

/// Drops what need not be fetched ahead of need, or may not.
fn drop_available<C: RequestContext>(context: &C, fetch_list: &mut Vec<C::Key>) {
    fetch_list.retain(|key| {
        let is_available = context.has_fixed_value(key)
            || context.scope_contains(key)
            || context.local_contains(key);
        context.may_keep(key) && !is_available
    });
}
