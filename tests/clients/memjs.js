// Every operation of memjs, which speaks binary alone: memjs.js PORT, with memjs in NODE_PATH and the login of a server
// that wants one in SASL_USER and SASL_PASSWORD.
'use strict';
const memjs = require('memjs');

const address = `localhost:${process.argv[2]}`;
const silentLogger = { log() {} };
let checkCount = 0;
let failureCount = 0;

/** Notes whether an operation did as the client promises. */
function check(operation, condition) {
  checkCount += 1;
  if (!condition) {
    failureCount += 1;
    console.log(`  FAIL ${operation}`);
  }
}

/** A client that logs in if the server wants it. */
function connect(password) {
  const login = process.env.SASL_USER ? { username: process.env.SASL_USER, password } : {};
  return memjs.Client.create(address, { timeout: 5, retries: 1, logger: silentLogger, ...login });
}

/** The value under a key as text, or null. */
async function readText(client, key) {
  const { value } = await client.get(key);
  return value === null ? null : value.toString();
}

/** What `stats` reports, with an argument or without. */
function stats(client, argument) {
  return new Promise((resolve, reject) => {
    client.statsWithKey(argument, (error, server, values) => (error ? reject(error) : resolve(values)));
  });
}

async function main() {
  const client = connect(process.env.SASL_PASSWORD);
  check('flush', (await client.flush())[address]);
  check('set and get', (await client.set('a', 'text')) && (await readText(client, 'a')) === 'text');
  check('miss', (await readText(client, 'none')) === null);
  check('expires', (await client.set('e', 'v', { expires: 100 })) && (await readText(client, 'e')) === 'v');
  const bytes = Buffer.from([0, 255, 13, 10, 0]);
  check('bytes', (await client.set('bytes', bytes)) && bytes.equals((await client.get('bytes')).value));
  const large = 'x'.repeat(900000);
  check('large value', (await client.set('large', large)) && (await readText(client, 'large')) === large);
  check('empty value', (await client.set('empty', '')) && (await readText(client, 'empty')) === '');
  check('add', (await client.add('b', '1')) && !(await client.add('b', '2')));
  check('replace', (await client.replace('b', '3')) && !(await client.replace('none', '1')));
  check('append', (await client.append('b', '4')) && (await readText(client, 'b')) === '34');
  check('append to nothing', !(await client.append('none', '4').catch(() => false)));
  // 1.3.2 sends the opcode of append.
  check('prepend', (await client.prepend('b', '5')) && (await readText(client, 'b')) === '345');
  check('increment with initial', (await client.increment('n', 3, { initial: 5 })).value === 5);
  check('increment', (await client.increment('n', 3, {})).value === 8);
  check('decrement', (await client.decrement('n', 1, {})).value === 7);
  check('decrement below 0', (await client.decrement('n', 100, {})).value === 0);
  check('increment of text', await client.increment('a', 1, {}).then(() => false, () => true));
  check('touch', (await client.touch('a', 100)) && !(await client.touch('none', 100)));
  check('delete', (await client.delete('a')) && !(await client.delete('a')));
  const keys = Array.from({ length: 1000 }, (_, number) => `m${number}`);
  await Promise.all(keys.map((key) => client.set(key, key)));
  const values = await Promise.all(keys.map((key) => readText(client, key)));
  check('1000 pipelined sets and gets', values.every((value, number) => value === keys[number]));
  check('stats', (await stats(client, '')).pid);
  check('stats settings', (await stats(client, 'settings')).maxconns);
  check('reset stats', await stats(client, 'reset'));
  check('flush again', (await client.flush())[address] && (await readText(client, 'b')) === null);
  client.quit();
  if (process.env.SASL_USER) {
    const refusedClient = connect('wrong');
    check('wrong password', await refusedClient.set('a', 'v').then(() => false, () => true));
    refusedClient.close();
  }
  console.log(`${checkCount - failureCount} of ${checkCount} operations`);
  process.exit(failureCount === 0 ? 0 : 1);
}

main().catch((error) => {
  console.log(error);
  process.exit(1);
});
