import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Server, group, its protocol (classic, consumer), topic: consumes until its input ends; says when it has a partition. */
public class JoinGroup {
    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("group.id", given[1]);
        settings.put("client.id", "in Java");
        settings.put("group.protocol", given[2]);
        settings.put("enable.auto.commit", "false");
        var bytes = new ByteArrayDeserializer();
        boolean hasJoined = false;
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(given[3]));
            while (!hasJoined || System.in.available() == 0) {
                consumer.poll(Duration.ofMillis(100));
                if (!hasJoined && !consumer.assignment().isEmpty()) {
                    hasJoined = true;
                    System.out.println("joined");
                }
            }
        }
    }
}
