import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import net.spy.memcached.BinaryConnectionFactory;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactory;
import net.spy.memcached.DefaultConnectionFactory;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;

/**
 * Every operation of spymemcached over the text or the binary protocol: Spy PORT [binary], with the login of a server
 * that wants one in SASL_USER and SASL_PASSWORD.
 */
public class Spy {
    /** Logs in by PLAIN on each connection. */
    static class LoginFactory extends BinaryConnectionFactory {
        @Override
        public AuthDescriptor getAuthDescriptor() {
            PlainCallbackHandler login =
                new PlainCallbackHandler(System.getenv("SASL_USER"), System.getenv("SASL_PASSWORD"));
            return new AuthDescriptor(new String[] {"PLAIN"}, login);
        }
    }

    static ConnectionFactory factory(String protocol) {
        if (System.getenv("SASL_USER") != null) {
            return new LoginFactory();
        }
        return protocol.equals("binary") ? new BinaryConnectionFactory() : new DefaultConnectionFactory();
    }

    static int checkCount = 0;
    static int failureCount = 0;

    static void check(String operation, boolean condition) {
        checkCount++;
        if (!condition) {
            failureCount++;
            System.out.println("  FAIL " + operation);
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        java.util.logging.Logger.getLogger("net.spy.memcached").setLevel(java.util.logging.Level.OFF);
        ConnectionFactory factory = factory(arguments.length > 1 ? arguments[1] : "text");
        InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
        MemcachedClient client = new MemcachedClient(factory, List.of(address));
        check("flush", client.flush().get());
        check("set", client.set("a", 100, "text").get() && client.get("a").equals("text"));
        check("miss", client.get("none") == null);
        check("types", client.set("i", 100, 5).get() && client.get("i").equals(5));
        char[] letters = new char[100000];
        Arrays.fill(letters, 'x');
        String large = new String(letters);
        check("compression", client.set("z", 100, large).get() && client.get("z").equals(large));
        check("asyncGet", client.asyncGet("a").get().equals("text"));
        Map<String, Object> bulk = client.getBulk("a", "i", "none");
        check("getBulk", bulk.size() == 2 && bulk.get("i").equals(5));
        check("add", client.add("b", 100, "1").get() && !client.add("b", 100, "2").get());
        check("replace", client.replace("b", 100, "3").get() && !client.replace("none", 100, "1").get());
        check("append", client.append("b", "4").get() && client.prepend("b", "2").get() && client.get("b").equals("234"));
        CASValue<Object> valueAndUnique = client.gets("b");
        check("gets", valueAndUnique.getValue().equals("234") && valueAndUnique.getCas() > 0);
        check("cas", client.cas("b", valueAndUnique.getCas(), "5") == CASResponse.OK);
        check("cas again", client.cas("b", valueAndUnique.getCas(), "6") == CASResponse.EXISTS);
        check("cas of nothing", client.cas("none", valueAndUnique.getCas(), "6") == CASResponse.NOT_FOUND);
        check("incr", client.incr("n", 1, 5L) == 5 && client.incr("n", 3) == 8 && client.decr("n", 1) == 7);
        check("incr of nothing", client.incr("nothing", 1) == -1);
        check("asyncIncr", client.asyncIncr("n", 2).get() == 9);
        check("touch", client.touch("a", 200).get() && !client.touch("none", 200).get());
        check("delete", client.delete("a").get() && !client.delete("a").get());
        String[] keys = new String[1000];
        for (int number = 0; number < keys.length; number++) {
            client.set("m" + number, 100, number);
        }
        for (int number = 0; number < keys.length; number++) {
            keys[number] = "m" + number;
        }
        check("1000 pipelined sets and one bulk get", client.getBulk(keys).size() == keys.length);
        check("getVersions", client.getVersions().size() == 1);
        check("getStats", client.getStats().values().iterator().next().containsKey("pid"));
        check("getStats settings", client.getStats("settings").values().iterator().next().containsKey("maxconns"));
        check("flush with delay", client.flush(0).get());
        client.shutdown();
        System.out.println((checkCount - failureCount) + " of " + checkCount + " operations");
        System.exit(failureCount == 0 ? 0 : 1);
    }
}
