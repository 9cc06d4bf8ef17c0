"""Servers found, not listed: DNS addresses, SRV records, ElastiCache's `config get cluster`.

A source is a function that returns the present servers, sorted; a `Watch` calls it periodically and
hands a changed list to `client.set_servers`, which makes a new ring and keeps the connections of
the servers that stay. A source that fails or returns nothing leaves the list unchanged: a name
server that is down must not cost the cache.
"""

from glasscache.discovery.dns_client import DiscoveryError
from glasscache.discovery.sources import cluster_nodes, dns, elasticache, parse_cluster, srv
from glasscache.discovery.watch import Source, Watch, keep_up

__all__ = [
    "DiscoveryError",
    "Source",
    "Watch",
    "cluster_nodes",
    "dns",
    "elasticache",
    "keep_up",
    "parse_cluster",
    "srv",
]
