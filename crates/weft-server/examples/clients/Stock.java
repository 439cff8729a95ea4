// Takes lamps from the stock: java -cp 'jars/*' Stock.java [PORT], with Jedis and what it needs in `jars`.

import java.util.List;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.SafeEncoder;

public class Stock {
    public static void main(String[] arguments) {
        int port = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 6380;
        try (Jedis client = new Jedis("127.0.0.1", port)) {
            // A procedure is called by its name, or as a function.
            List<?> taken = (List<?>) client.sendCommand(() -> SafeEncoder.encode("TAKE"), "7");
            String name = SafeEncoder.encode((byte[]) taken.get(0));
            long left = (Long) taken.get(1);
            System.out.printf("one %s taken, %d left%n", name, left);
            List<?> again = (List<?>) client.fcall("take", List.of(), List.of("7", "2"));
            check(again.get(1).equals(left - 2), "FCALL take: " + again);
            check(client.sendCommand(() -> SafeEncoder.encode("TAKE"), "7", "1000000") == null, "more than there are");
            try {
                client.sendCommand(() -> SafeEncoder.encode("TAKE"), "seven");
                check(false, "a wrong argument was taken");
            } catch (JedisDataException refused) {
                check(refused.getMessage().contains("must be an integer"), refused.getMessage());
            }
        }
    }

    private static void check(boolean isRight, String message) {
        if (!isRight) {
            throw new IllegalStateException(message);
        }
    }
}
