<?php
// Stores each key of standard input through pecl-memcache; compare.py then asks the servers who has it.
ini_set('memcache.hash_strategy', 'standard');
$client = new Memcache();
foreach (array_slice($argv, 1) as $word) {
    [$address, $weight] = array_pad(explode('*', $word), 2, '1');
    [$host, $port] = explode(':', $address);
    $client->addServer($host, (int)$port, true, (int)$weight);
}
while (($key = fgets(STDIN)) !== false) {
    $client->set(rtrim($key, "\n"), '1');
}
