//! Our client against one server, as the place where compressed values are kept.

use glasscache_client::request::Item;
use glasscache_client::{Client, StoreMode};

use super::compressors::Compressed;
use crate::target::{CallError, Target, new_call_budget, to_wire_key};

/// Our client against one server.
pub(super) struct ValueStore<'t> {
    pub(super) target: &'t Target,
    client: Client,
}

impl<'t> ValueStore<'t> {
    /// A client of `target`.
    pub(super) fn new(target: &'t Target) -> Result<Self, CallError> {
        Ok(Self { target, client: target.new_client(false)? })
    }

    pub(super) fn set(&self, key: &str, value: &Compressed) -> Result<(), CallError> {
        let item = Item { key: to_wire_key(key), flags: value.flags, body: &value.bytes };
        self.client.store(StoreMode::Set, item, 0, false, &new_call_budget())?;
        Ok(())
    }

    pub(super) fn get(&self, key: &str) -> Result<Option<Compressed>, CallError> {
        let found_value = self.client.get(to_wire_key(key), false, &new_call_budget())?;
        Ok(found_value.map(|found| Compressed { flags: found.flags, bytes: found.bytes }))
    }

    pub(super) fn delete(&self, key: &str) -> Result<(), CallError> {
        self.client.delete(to_wire_key(key), false, &new_call_budget())?;
        Ok(())
    }

    /// Bytes of all items as the server counts them.
    pub(super) fn stored_bytes(&self) -> Option<u64> {
        self.target.item_bytes()
    }
}
