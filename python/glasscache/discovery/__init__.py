"""Servers found, not listed: DNS addresses, SRV records, ElastiCache's `config get cluster`.

A source is a function that returns the present servers, sorted; a `Watch` asks it now and then and
hands a changed list to `client.set_servers`, which makes a new ring and keeps the connections of
the servers that stay. A source that fails or answers with nothing leaves the list as it is: a name
server that is down is no reason to lose a cache.
"""

from glasscache.discovery.names import DiscoveryError
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
