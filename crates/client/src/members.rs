//! The present servers of a client: the ring, and a slot for each server that the client has ever had.
//!
//! A server keeps its slot for the client's life, so a call that found its slot on the old ring
//! finishes there while another thread changes the servers. A server that left keeps its slot,
//! but no connection and no probe; if it returns, it is found again by its address.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::address::{Address, Endpoint};
use crate::error::Error;
use crate::fork::Process;
use crate::near::ClientNearCache;
use crate::options::Options;
use crate::pool::Server;
use crate::ring::{self, Placement, Ring};

/// The servers of one client in one process, from one change to the next.
#[derive(Debug)]
pub(crate) struct Members {
    /// The process that they belong to.
    pub(crate) process: Process,
    /// Every server that the client has ever had, in its slot.
    pub(crate) servers: Vec<Arc<Server>>,
    /// The slots of the present ones, in the order given.
    present_slots: Vec<usize>,
    ring: Arc<Ring>,
    /// Whether the servers are watched, for a client whose near cache is coherent.
    pub(crate) has_watches: AtomicBool,
    /// What the client keeps in the process, if it runs a strategy.
    near: Option<Arc<ClientNearCache>>,
}

impl Members {
    pub(crate) fn new(
        addresses: &[Address],
        placement: Placement,
        options: &Arc<Options>,
        near: Option<Arc<ClientNearCache>>,
    ) -> Result<Self, Error> {
        let server_at = |address: &Address| new_server(&address.endpoint, options, near.as_ref());
        Ok(Self {
            process: Process::current(),
            servers: addresses.iter().map(server_at).collect(),
            present_slots: (0..addresses.len()).collect(),
            ring: build_ring(addresses, placement)?,
            has_watches: AtomicBool::new(false),
            near,
        })
    }

    /// The same servers with these present; those that are new get the next slots.
    pub(crate) fn with_servers(
        &self,
        addresses: &[Address],
        ring: &Arc<Ring>,
        options: &Arc<Options>,
    ) -> Self {
        let mut servers = self.servers.clone();
        let mut find_or_add_slot = |address: &Address| {
            let known_slot = servers.iter().position(|server| server.endpoint == address.endpoint);
            known_slot.unwrap_or_else(|| {
                servers.push(new_server(&address.endpoint, options, self.near.as_ref()));
                servers.len() - 1
            })
        };
        Self {
            process: self.process.clone(),
            present_slots: addresses.iter().map(&mut find_or_add_slot).collect(),
            servers,
            ring: ring.clone(),
            has_watches: AtomicBool::new(false),
            near: self.near.clone(),
        }
    }

    /// The same servers for a child after a fork, without connections.
    pub(crate) fn for_child_process(&self, options: &Arc<Options>) -> Self {
        let new_server_like =
            |server: &Arc<Server>| new_server(&server.endpoint, options, self.near.as_ref());
        Self {
            process: Process::current(),
            servers: self.servers.iter().map(new_server_like).collect(),
            present_slots: self.present_slots.clone(),
            ring: self.ring.clone(),
            has_watches: AtomicBool::new(false),
            near: self.near.clone(),
        }
    }

    /// The slot of a key's server; the key with its namespace, before base64.
    pub(crate) fn slot_of(&self, key: &[u8]) -> usize {
        self.only_slot().unwrap_or_else(|| {
            let present_index = self.ring.server_of(key);
            self.present_slots.get(present_index).copied().unwrap_or_default()
        })
    }

    /// The slot of the only server, if there is just one.
    pub(crate) fn only_slot(&self) -> Option<usize> {
        match self.present_slots.as_slice() {
            &[slot] => Some(slot),
            _ => None,
        }
    }

    /// The present servers and their slots, in the order given.
    pub(crate) fn present_servers(&self) -> impl Iterator<Item = (usize, &Arc<Server>)> {
        self.present_slots.iter().filter_map(|&slot| Some((slot, self.servers.get(slot)?)))
    }

    /// Updates each server's presence; those that left close their idle connections, and
    /// one that returns counts as up: its calls find out how it is.
    pub(crate) fn update_presence(&self) {
        for (slot, server) in self.servers.iter().enumerate() {
            let is_present = self.present_slots.contains(&slot);
            if is_present && server.pool.has_server_left() {
                server.health.mark_up();
            }
            server.pool.set_present(is_present);
        }
    }
}

fn new_server(
    endpoint: &Endpoint,
    options: &Arc<Options>,
    near: Option<&Arc<ClientNearCache>>,
) -> Arc<Server> {
    let server = Server::new(endpoint.clone(), options.clone(), near.cloned());
    Arc::new(server)
}

pub(crate) fn build_ring(addresses: &[Address], placement: Placement) -> Result<Arc<Ring>, Error> {
    let ring_servers: Vec<_> = addresses.iter().map(to_ring_server).collect();
    let ring =
        Ring::new(&ring_servers, placement).map_err(|error| Error::BadSetting(error.to_string()));
    ring.map(Arc::new)
}

fn to_ring_server(address: &Address) -> ring::RingServer {
    let (host, port) = match &address.endpoint {
        Endpoint::Tcp(host, port) => (host.clone(), Some(*port)),
        Endpoint::Unix(path) => (path.display().to_string(), None),
    };
    ring::RingServer { host, port, weight: address.weight }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::health::HealthEffect;

    fn addresses(text: &str) -> Vec<Address> {
        Address::parse_list(text).unwrap()
    }

    fn slots_and_names(members: &Members) -> Vec<(usize, String)> {
        let slot_and_name = |(slot, server): (usize, &Arc<Server>)| (slot, server.name.clone());
        members.present_servers().map(slot_and_name).collect()
    }

    #[test]
    fn a_server_keeps_its_slot_and_its_connections_while_others_join_and_leave() {
        let options = Arc::new(Options::default());
        let first_addresses = addresses("a:1,b:2");
        let old_members =
            Members::new(&first_addresses, Placement::Ketama, &options, None).unwrap();
        let change = |members: &Members, text: &str| {
            let next_addresses = addresses(text);
            let ring = build_ring(&next_addresses, Placement::Ketama).unwrap();
            members.with_servers(&next_addresses, &ring, &options)
        };

        let new_members = change(&old_members, "c:3,b:2");
        assert_eq!(slots_and_names(&new_members), [(2, "c:3".into()), (1, "b:2".into())]);
        assert!(Arc::ptr_eq(&old_members.servers[1], &new_members.servers[1]));
        new_members.update_presence();
        assert!(new_members.servers[0].pool.has_server_left());
        assert!(!new_members.servers[1].pool.has_server_left());
        new_members.servers[0].health.apply_effect(HealthEffect::Down);

        let returned_members = change(&new_members, "a:1");
        returned_members.update_presence();
        assert_eq!(returned_members.only_slot(), Some(0));
        assert_eq!(returned_members.slot_of(b"any"), 0);
        assert!(
            Arc::ptr_eq(&old_members.servers[0], &returned_members.servers[0])
                && !returned_members.servers[0].pool.has_server_left()
        );
        assert!(!returned_members.servers[0].health.is_down());
    }

    #[test]
    fn a_key_maps_to_the_server_that_the_ring_of_the_present_ones_names() {
        let options = Arc::new(Options::default());
        let old_members =
            Members::new(&addresses("a:1"), Placement::Ketama, &options, None).unwrap();
        let next_addresses = addresses("b:2,c:3");
        let ring = build_ring(&next_addresses, Placement::Ketama).unwrap();
        let members = old_members.with_servers(&next_addresses, &ring, &options);
        for number in 0..100 {
            let key = format!("key{number}");
            assert_eq!(members.slot_of(key.as_bytes()), ring.server_of(key.as_bytes()) + 1);
        }
    }
}
