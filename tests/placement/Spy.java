// Prints spymemcached's server index of each key on standard input: Spy (spymemcached|ketama) host:port... < keys
import java.io.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import net.spy.memcached.*;

public class Spy {
    public static void main(String[] args) throws Exception {
        List<InetSocketAddress> servers = new ArrayList<>();
        for (String argument : Arrays.asList(args).subList(1, args.length)) {
            int colon = argument.lastIndexOf(':');
            byte[] address = InetAddress.getByName(argument.substring(0, colon)).getAddress();
            servers.add(new InetSocketAddress(InetAddress.getByAddress(address),
                Integer.parseInt(argument.substring(colon + 1))));
        }
        boolean isKetama = args[0].equals("ketama");
        MemcachedClient client = isKetama
            ? new MemcachedClient(new KetamaConnectionFactory(), servers)
            : new MemcachedClient(servers.toArray(new InetSocketAddress[0]));
        NodeLocator locator = client.getNodeLocator();
        BufferedReader keys = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String key; (key = keys.readLine()) != null; ) {
            out.append(servers.indexOf(locator.getPrimary(key).getSocketAddress())).append('\n');
        }
        System.out.print(out);
        System.out.flush();
        System.exit(0);
    }
}
