// Stores or reads typed values through spymemcached: Spy write|read host port COMPRESSION < lines
import java.io.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import net.spy.memcached.*;
import net.spy.memcached.transcoders.SerializingTranscoder;

public class Spy {
    public static void main(String[] args) throws Exception {
        SerializingTranscoder transcoder = new SerializingTranscoder();
        transcoder.setCompressionThreshold(args[3].equals("-") ? Integer.MAX_VALUE : 1000);
        ConnectionFactory factory = new ConnectionFactoryBuilder().setTranscoder(transcoder).build();
        InetSocketAddress server = new InetSocketAddress(args[1], Integer.parseInt(args[2]));
        MemcachedClient client = new MemcachedClient(factory, List.of(server));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] fields = line.split("\t", -1);
            if (args[0].equals("write")) {
                client.set(fields[0], 0, parseValue(fields[1], fields[2])).get();
            } else {
                System.out.println(fields[0] + "\t" + formatValue(client.get(fields[0])));
            }
        }
        System.out.flush();
        System.exit(0);
    }

    static Object parseValue(String type, String payload) {
        switch (type) {
            case "str": return new String(parseHex(payload), StandardCharsets.UTF_8);
            case "bytes": return parseHex(payload);
            case "float": return Double.valueOf(payload);
            case "bool": return payload.equals("1");
            case "list": return new ArrayList<Object>(List.of(1, "a", 2.5));
            default:
                long number = Long.parseLong(payload);
                return number == (int) number ? (Object) (int) number : (Object) number;
        }
    }

    static String formatValue(Object value) {
        if (value == null) return "missing\t";
        if (value instanceof String) return "str\t" + formatHex(((String) value).getBytes(StandardCharsets.UTF_8));
        if (value instanceof byte[]) return "bytes\t" + formatHex((byte[]) value);
        if (value instanceof Double || value instanceof Float) return "float\t" + value;
        if (value instanceof Boolean) return "bool\t" + ((Boolean) value ? 1 : 0);
        if (value instanceof Number) return "int\t" + value;
        return "list\t" + value;
    }

    static byte[] parseHex(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        return bytes;
    }

    static String formatHex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) text.append(String.format("%02x", b));
        return text.toString();
    }
}
