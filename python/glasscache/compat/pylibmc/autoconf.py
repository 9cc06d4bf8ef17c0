"""Servers of an Amazon ElastiCache cluster, from its configuration endpoint."""

from __future__ import annotations

from glasscache import discovery
from glasscache.compat import pylibmc


class NoAutoconfFound(Exception):
    """The endpoint names no cluster."""


def elasticache(
    address: str = "127.0.0.1:11211",
    config_key: str = "cluster",
    mc_key: str = "AmazonElastiCache:cluster",
) -> pylibmc.Client:
    """Return a client of the cluster's nodes, by `config get` or, if it is old, as the value of mc_key."""
    try:
        nodes = discovery.elasticache(address, config_key)()
    except discovery.DiscoveryError:
        config = pylibmc.Client([address]).get(mc_key)
        if config is None:
            raise NoAutoconfFound(f"no {mc_key!r} at {address}") from None
        nodes = discovery.cluster_nodes(config.decode())
    return pylibmc.Client(nodes)
