<?php
// Prints php-memcached's server index of each key on standard input: phpmemcached.php RULE host:port*weight... < keys
$client = new Memcached();
if ($argv[1] === 'ketama') {
    $client->setOption(Memcached::OPT_LIBKETAMA_COMPATIBLE, true);
} elseif ($argv[1] === 'ketama-oneatatime') {
    $client->setOption(Memcached::OPT_DISTRIBUTION, Memcached::DISTRIBUTION_CONSISTENT);
}
$indexByServer = [];
foreach (array_slice($argv, 2) as $position => $argument) {
    [$address, $weight] = array_pad(explode('*', $argument), 2, '1');
    [$host, $port] = explode(':', $address);
    $client->addServer($host, (int)$port, (int)$weight);
    $indexByServer["$host:$port"] = $position;
}
while (($key = fgets(STDIN)) !== false) {
    $server = $client->getServerByKey(rtrim($key, "\n"));
    echo $indexByServer[$server['host'] . ':' . $server['port']], "\n";
}
