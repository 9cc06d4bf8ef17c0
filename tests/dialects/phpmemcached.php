<?php
// Stores or reads typed values through php-memcached: phpmemcached.php write|read host port COMPRESSION < lines
[$_, $mode, $host, $port, $compression] = $argv;
$client = new Memcached();
$client->addServer($host, (int)$port);
$client->setOption(Memcached::OPT_COMPRESSION, $compression !== '-');
if ($compression !== '-') {
    $methods = ['zlib' => Memcached::COMPRESSION_ZLIB, 'fastlz' => Memcached::COMPRESSION_FASTLZ];
    $client->setOption(Memcached::OPT_COMPRESSION_TYPE, $methods[$compression]);
}
require __DIR__ . '/lines.php';
handle_lines($mode, fn($key, $value) => $client->set($key, $value), function ($key) use ($client) {
    $value = $client->get($key);
    return [$client->getResultCode() === Memcached::RES_SUCCESS, $value];
});
