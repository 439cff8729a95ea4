// A handful of commands by Jedis: java -cp 'jars/*' Commands.java PORT, with Jedis and what it needs in `jars`.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.args.GeoUnit;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.SortingParams;
import redis.clients.jedis.params.XReadParams;

public class Commands {
    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        try (JedisPooled pool = new JedisPooled("127.0.0.1", port); Jedis client = new Jedis("127.0.0.1", port)) {
            client.flushAll();
            check("OK".equals(pool.set("greeting", "hello", SetParams.setParams().ex(100))), "SET");
            check("hello".equals(pool.get("greeting")) && pool.get("absent") == null, "GET");
            pool.hset("user", Map.of("name", "Ada", "born", "1815"));
            check(pool.hgetAll("user").equals(Map.of("name", "Ada", "born", "1815")), "HGETALL");
            pool.zadd("board", Map.of("a", 1.5, "b", 2.0));
            check(pool.zrangeWithScores("board", 0, -1).get(0).getScore() == 1.5, "ZRANGE");
            transactions(client, port);
            StreamEntryID id = pool.xadd("events", (StreamEntryID) null, Map.of("kind", "made"));
            var read = pool.xread(XReadParams.xReadParams(), Map.of("events", new StreamEntryID()));
            check(read.get(0).getValue().get(0).getID().equals(id), "XREAD");
            pool.geoadd("Sicily", 13.361389, 38.115556, "Palermo");
            pool.geoadd("Sicily", 15.087269, 37.502669, "Catania");
            check(Math.abs(pool.geodist("Sicily", "Palermo", "Catania", GeoUnit.KM) - 166.2742) < 0.001, "GEODIST");
            check(pool.georadius("Sicily", 15, 37, 200, GeoUnit.KM).size() == 2, "GEORADIUS");
            check(Math.abs(pool.geopos("Sicily", "Catania").get(0).getLatitude() - 37.502669) < 0.00001, "GEOPOS");
            pool.pfadd("visitors", "a", "b", "a");
            check(pool.pfcount("visitors") == 2, "PFCOUNT");
            pool.rpush("numbers", "3", "1", "2");
            check(pool.sort("numbers", new SortingParams().desc()).equals(List.of("3", "2", "1")), "SORT");
            check(pool.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, "m", "3").equals(3L), "EVAL");
            messages(client, port);
        }
        System.out.println("Jedis");
    }

    private static void transactions(Jedis client, int port) {
        Transaction transaction = client.multi();
        Response<Long> sum = transaction.incrBy("n", 4);
        transaction.incr("n");
        check(transaction.exec().equals(List.of(4L, 5L)) && sum.get() == 4, "EXEC");
        try (Jedis other = new Jedis("127.0.0.1", port)) {
            client.watch("n");
            other.set("n", "7");
            Transaction lost = client.multi();
            lost.set("n", "8");
            check(lost.exec() == null && "7".equals(client.get("n")), "a lost EXEC");
        }
    }

    private static void messages(Jedis client, int port) throws Exception {
        List<String> heard = new ArrayList<>();
        try (Jedis other = new Jedis("127.0.0.1", port)) {
            // The subscriber's own thread publishes, when it is subscribed.
            other.subscribe(new JedisPubSub() {
                @Override
                public void onSubscribe(String channel, int count) {
                    client.publish(channel, "x");
                }

                @Override
                public void onMessage(String channel, String message) {
                    heard.add(message);
                    unsubscribe();
                }
            }, "news");
        }
        check(heard.equals(List.of("x")), "a message");
    }

    private static void check(boolean isRight, String message) {
        if (!isRight) {
            throw new IllegalStateException(message);
        }
    }
}
