<?php
// Stores or reads typed values through pecl-memcache: pecl.php write|read host port COMPRESSION < lines
[$_, $mode, $host, $port, $compression] = $argv;
$client = new Memcache();
$client->addServer($host, (int)$port);
if ($compression !== '-') {
    $client->setCompressThreshold(1000, 0.1);
}
require __DIR__ . '/lines.php';
handle_lines($mode, fn($key, $value) => $client->set($key, $value), function ($key) use ($client) {
    $flags = false;
    $value = $client->get($key, $flags);
    return [$flags !== false, $value];
});
