<?php
// Stores each key of standard input through pecl-memcache; compare.py then reads each server to find which one has it.
ini_set('memcache.hash_strategy', 'standard');
$client = new Memcache();
foreach (array_slice($argv, 1) as $server) {
    [$address, $weight] = array_pad(explode('*', $server), 2, '1');
    [$host, $port] = explode(':', $address);
    $client->addServer($host, (int)$port, true, (int)$weight);
}
while (($key = fgets(STDIN)) !== false) {
    $client->set(rtrim($key, "\n"), '1');
}
