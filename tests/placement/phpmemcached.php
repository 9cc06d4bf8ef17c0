<?php
// Prints php-memcached's server index of each key on standard input: phpmemcached.php RULE host:port*weight... < keys
$client = new Memcached();
if ($argv[1] === 'ketama') {
    $client->setOption(Memcached::OPT_LIBKETAMA_COMPATIBLE, true);
} elseif ($argv[1] === 'ketama-oneatatime') {
    $client->setOption(Memcached::OPT_DISTRIBUTION, Memcached::DISTRIBUTION_CONSISTENT);
}
$index = [];
foreach (array_slice($argv, 2) as $place => $word) {
    [$address, $weight] = array_pad(explode('*', $word), 2, '1');
    [$host, $port] = explode(':', $address);
    $client->addServer($host, (int)$port, (int)$weight);
    $index["$host:$port"] = $place;
}
while (($key = fgets(STDIN)) !== false) {
    $server = $client->getServerByKey(rtrim($key, "\n"));
    echo $index[$server['host'] . ':' . $server['port']], "\n";
}
