# Prints Dalli's server index of each key on standard input: dalli.rb host:port*weight... < keys
require 'dalli'

client = Dalli::Client.new(ARGV.map { |argument| argument.tr('*', ':') }, threadsafe: false)
ring = client.send(:ring)
index_by_server = ring.servers.each_with_index.to_h
STDIN.each_line(chomp: true) do |key|
  # The private look-up below `server_for_key`, which would connect first.
  puts index_by_server[ring.send(:server_for_hash_key, ring.send(:hash_for, key))]
end
