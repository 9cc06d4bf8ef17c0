# Stores or reads typed values through Dalli: dalli.rb write|read host port COMPRESSION < lines
require 'dalli'

mode, host, port, compression = ARGV
client = Dalli::Client.new("#{host}:#{port}", compress: compression != '-', compression_min_size: 1000)
STDIN.each_line(chomp: true) do |line|
  key, type, payload = line.split("\t", -1)
  if mode == 'write'
    value = case type
            when 'str' then [payload].pack('H*').force_encoding('UTF-8')
            when 'bytes' then [payload].pack('H*')
            when 'int' then payload.to_i
            when 'float' then payload.to_f
            when 'bool' then payload == '1'
            when 'none' then nil
            when 'list' then [1, 'a', 2.5]
            end
    client.set(key, value)
    next
  end
  value = client.get(key)
  puts [key, *case value
              when nil then ['none', '']
              when true, false then ['bool', value ? 1 : 0]
              when Integer then ['int', value]
              when Float then ['float', value]
              when String then [value.encoding == Encoding::UTF_8 ? 'str' : 'bytes', value.unpack1('H*')]
              else ['list', value.inspect]
              end].join("\t")
end
