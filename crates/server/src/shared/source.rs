//! The source of a connection: the network address that shares are counted for.

use std::net::{IpAddr, Ipv6Addr};

use crate::shared::connection_info::Peer;

/// Where a connection comes from: an IPv4 address, or the 64 bits of an IPv6 address that name its network, because
/// one host has all addresses of its network. All clients of unix sockets are one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source(Option<IpAddr>);

/// The bits of an IPv6 address that name its network.
const NETWORK_MASK: u128 = !0 << 64;

impl Source {
    /// The source of a peer.
    pub(crate) fn of(peer: &Peer) -> Source {
        let Peer::Tcp(address) = peer else {
            return Source(None);
        };
        Source(Some(match address.ip().to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & NETWORK_MASK)),
            ip @ IpAddr::V4(_) => ip,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> Source {
        Source::of(&Peer::Tcp(address.parse().unwrap()))
    }

    #[test]
    fn all_ports_of_a_host_and_all_addresses_of_its_ipv6_network_are_one_source() {
        assert_eq!(source("10.0.0.1:1"), source("10.0.0.1:2"));
        assert_eq!(source("10.0.0.1:1"), source("[::ffff:10.0.0.1]:1"));
        assert_eq!(source("[2001:db8::1]:1"), source("[2001:db8::ffff:2]:1"));
        assert_ne!(source("10.0.0.1:1"), source("10.0.0.2:1"));
        assert_ne!(source("[2001:db8::1]:1"), source("[2001:db8:0:1::1]:1"));
        assert_ne!(source("10.0.0.1:1"), Source::of(&Peer::Unix));
    }
}
