# Every operation of Dalli over the meta or the binary protocol: dalli.rb PORT [binary], with Dalli on the load path (3.2 or newer for
# meta, 3.x for binary), the authority of a server that encrypts in TLS_AUTHORITY, and the login of one that wants it in SASL_USER and
# SASL_PASSWORD.
require 'dalli'

PROTOCOL = (ARGV[1] || 'meta').to_sym
if PROTOCOL == :meta && Gem::Version.new(Dalli::VERSION) < Gem::Version.new('3.2')
  abort "Dalli #{Dalli::VERSION} has no meta protocol"
end

$check_count = 0
$failed_operations = []

# Notes whether an operation did as the client promises.
def check(operation, condition)
  $check_count += 1
  return if condition

  $failed_operations << operation
  puts "  FAIL #{operation}"
end

# What the block returns; false where it calls a method that is missing, as 3.0 does when it reads several keys over TLS.
def attempt
  yield
rescue NoMethodError
  false
end

options = { protocol: PROTOCOL }
if ENV['TLS_AUTHORITY']
  require 'openssl'
  options[:ssl_context] = OpenSSL::SSL::SSLContext.new
  options[:ssl_context].ca_file = ENV['TLS_AUTHORITY']
  options[:ssl_context].verify_mode = OpenSSL::SSL::VERIFY_PEER
  options[:ssl_context].verify_hostname = true
end
options.merge!(username: ENV['SASL_USER'], password: ENV['SASL_PASSWORD']) if ENV['SASL_USER']
client = Dalli::Client.new("localhost:#{ARGV[0]}", options)
client.flush
check 'set and get', client.set('a', 'text') && client.get('a') == 'text'
check 'miss', client.get('none').nil?
check 'types', client.set('h', { x: [1, 2.5, nil] }) && client.get('h') == { x: [1, 2.5, nil] }
check 'raw', client.set('raw', 5, 100, raw: true) && client.get('raw', raw: true) == '5'
check 'compression', client.set('z', 'x' * 100_000, 100, compress: true) && client.get('z') == 'x' * 100_000
check 'large value', client.set('l', 'x' * 900_000, 100, raw: true) && client.get('l', raw: true).size == 900_000
check 'get_multi', client.set('b', 'two') && attempt { client.get_multi('a', 'b', 'none') == { 'a' => 'text', 'b' => 'two' } }
check 'get_multi of many', attempt {
  300.times { |i| client.set("m#{i}", i) }
  client.get_multi((0...300).map { |i| "m#{i}" }).size == 300
}
check 'fetch', client.fetch('f') { 'made' } == 'made' && client.fetch('f') { 'again' } == 'made'
check 'add', client.add('add', 1) && !client.add('add', 2)
# 3.0 returns 0 where nothing was replaced, with memcached too.
check 'replace', client.replace('add', 3).to_i.positive? && [nil, false, 0].include?(client.replace('none', 3))
check 'append', client.set('s', '1', 0, raw: true) && client.append('s', '2') && client.prepend('s', '0') && client.get('s', raw: true) == '012'
check 'incr', client.incr('n', 1, 100, 5) == 5 && client.incr('n', 3) == 8 && client.decr('n', 1) == 7
check 'incr of nothing', client.incr('no number').nil?
check 'decr with default', client.decr('d', 1, 100, 9) == 9
check 'touch', client.touch('a', 100) && !client.touch('none', 100)
check 'gat', client.gat('a', 100) == 'text'
value, unique = client.get_cas('a')
check 'get_cas', value == 'text' && unique.positive?
check 'set_cas', client.set_cas('a', 'next', unique) && !client.set_cas('a', 'other', unique)
check 'cas', client.cas('a') { |old| "#{old}!" } && client.get('a') == 'next!'
check 'cas of nothing', client.cas('none') { 1 }.nil?
_, unique = client.get_cas('a')
check 'replace_cas', client.replace_cas('a', 'again', unique)
_, unique = client.get_cas('a')
check 'delete_cas', client.delete_cas('a', unique) && client.get('a').nil?
check 'delete', client.delete('b') && !client.delete('b')
# Before 3.1 the quiet block has another name.
quiet = client.respond_to?(:quiet) ? :quiet : :multi
client.public_send(quiet) { 50.times { |i| client.set("q#{i}", i) } }
check 'quiet', client.get('q49') == 49
client.public_send(quiet) { 50.times { |i| client.delete("q#{i}") } }
check 'quiet delete', client.get('q0').nil?
check 'get_multi_cas', begin
  client.set('c', 'v')
  client.get_multi_cas('c')['c'].first == 'v'
rescue NoMethodError
  true
end
check 'long key', client.set('k' * 300, 'long') && client.get('k' * 300) == 'long'
check 'key with a space', client.set('a b', 'space') && client.get('a b') == 'space'
check 'key in another script', client.set('ключ', 'v') && client.get('ключ') == 'v'
# An exptime is unsigned in the binary protocol, so -1 is the year 2106.
check 'expired at once', PROTOCOL == :binary || (client.set('e', 'v', -1) && client.get('e').nil?)
check 'version', client.version.values.first.to_s =~ /\d/
check 'stats', client.stats.values.first['pid']
check 'stats settings', client.stats(:settings).values.first['maxconns']
check 'reset_stats', client.reset_stats
check 'alive!', client.alive! || true
check 'flush', client.flush && client.get('c').nil?
client.close
if ENV['SASL_USER']
  check 'wrong password', begin
    Dalli::Client.new("localhost:#{ARGV[0]}", options.merge(password: 'wrong')).get('a')
    false
  rescue Dalli::DalliError
    true
  end
end
puts "#{$check_count - $failed_operations.size} of #{$check_count} operations (Dalli #{Dalli::VERSION})"
exit($failed_operations.empty? ? 0 : 1)
