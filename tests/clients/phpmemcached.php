<?php
// Every operation of php-memcached over the text or the binary protocol: phpmemcached.php PORT [binary], with the login of
// a server that wants one in SASL_USER and SASL_PASSWORD.
$checkCount = 0;
$failedOperations = [];

/** Notes whether an operation did as the client promises. */
function check(string $operation, $condition): void
{
    global $checkCount, $failedOperations;
    $checkCount++;
    if (!$condition) {
        $failedOperations[] = $operation;
        echo "  FAIL $operation\n";
    }
}

/** A client of the server, which logs in if the server wants it. */
function connect(array $argv, string $password): Memcached
{
    $client = new Memcached();
    $client->setOption(Memcached::OPT_BINARY_PROTOCOL, ($argv[2] ?? 'text') === 'binary');
    if (getenv('SASL_USER')) {
        $client->setSaslAuthData(getenv('SASL_USER'), $password);
    }
    $client->addServer('127.0.0.1', (int)$argv[1]);
    return $client;
}

$client = connect($argv, (string)getenv('SASL_PASSWORD'));
check('flush', $client->flush());
check('set and get', $client->set('a', 'text') && $client->get('a') === 'text');
check('miss', $client->get('none') === false && $client->getResultCode() === Memcached::RES_NOTFOUND);
check('types', $client->set('t', ['x' => [1, 2.5, null, true]]) && $client->get('t') === ['x' => [1, 2.5, null, true]]);
check('int', $client->set('i', 5) && $client->get('i') === 5);
check('compression', $client->set('z', str_repeat('x', 100000)) && $client->get('z') === str_repeat('x', 100000));
check('setMulti', $client->setMulti(['x' => 1, 'y' => 2]));
check('getMulti', $client->getMulti(['x', 'y', 'none']) === ['x' => 1, 'y' => 2]);
check('getMulti in order', array_keys($client->getMulti(['y', 'none', 'x'], Memcached::GET_PRESERVE_ORDER)) === ['y', 'none', 'x']);
check('getDelayed', $client->getDelayed(['x', 'y'], true) && count($client->fetchAll()) === 2);
check('get with cas', ($item = $client->get('a', null, Memcached::GET_EXTENDED)) && $item['value'] === 'text' && $item['cas'] > 0);
check('cas', $client->cas($item['cas'], 'a', 'next') && !$client->cas($item['cas'], 'a', 'other'));
check('add', $client->add('add', 1) && !$client->add('add', 2));
check('replace', $client->replace('add', 3) && !$client->replace('none', 1));
$client->setOption(Memcached::OPT_COMPRESSION, false);
check('append', $client->set('s', '1') && $client->append('s', '2') && $client->prepend('s', '0') && $client->get('s') === '012');
check('increment', $client->set('n', 5) && $client->increment('n', 3) === 8 && $client->decrement('n') === 7);
check('increment of nothing', $client->increment('none') === false);
check('touch', $client->touch('n', 100) && !$client->touch('none', 100));
check('delete', $client->delete('n') && !$client->delete('n'));
check('deleteMulti', $client->deleteMulti(['x', 'y'])['x'] === true);
check('expiry', $client->set('e', 'v', 100) && $client->get('e') === 'v');
check('getVersion', $client->getVersion());
check('getStats', array_values($client->getStats())[0]['pid'] > 0);
check('getStats settings', array_values($client->getStats('settings'))[0]['maxconns'] > 0);
check('getAllKeys', $client->getAllKeys() !== null);
$client->setOption(Memcached::OPT_NO_BLOCK, true);
check('no block', $client->set('nb', 'v') && $client->get('nb') === 'v');
$client->setOption(Memcached::OPT_NOREPLY, true);
$client->set('nr', 'v');
$client->setOption(Memcached::OPT_NOREPLY, false);
check('noreply', $client->get('nr') === 'v');
$client->setOption(Memcached::OPT_BUFFER_WRITES, true);
for ($i = 0; $i < 100; $i++) {
    $client->set("b$i", $i);
}
check('buffered writes', $client->get('b99') === 99);
check('flush again', $client->flush() && $client->get('a') === false);
$client->quit();
if (getenv('SASL_USER')) {
    check('wrong password', !connect($argv, 'wrong')->set('a', 'v'));
}
printf("%d of %d operations (php-memcached %s)\n", $checkCount - count($failedOperations), $checkCount, phpversion('memcached'));
exit($failedOperations ? 1 : 0);
