import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients, for partition 0 of topics.
 *
 * <p>{@code produce SERVER TOPIC}: some records by each compression, with what other clients do not send: records
 * without key and value, headers without value. {@code consume SERVER FOLDER TOPIC...}: what a consumer is given, into
 * FOLDER/TOPIC/ISOLATION.jsonl, one JSON object a record, bytes in hex.
 */
public class KafkaClient {
    public static void main(String[] given) throws Exception {
        var settings = new Properties();
        settings.put("bootstrap.servers", given[1]);
        if (given[0].equals("produce")) {
            produce(settings, given[2]);
            return;
        }
        for (String topic : List.of(given).subList(3, given.length)) {
            for (String isolation : List.of("read_uncommitted", "read_committed")) {
                settings.put("isolation.level", isolation);
                Path file = Path.of(given[2], topic, isolation + ".jsonl");
                Files.createDirectories(file.getParent());
                try (var out = new PrintStream(Files.newOutputStream(file))) {
                    consume(settings, new TopicPartition(topic, 0), out);
                }
            }
        }
    }

    private static void produce(Properties settings, String topic) {
        var bytes = new ByteArraySerializer();
        settings.put("linger.ms", "50");
        for (String compression : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            settings.put("compression.type", compression);
            try (var producer = new KafkaProducer<byte[], byte[]>(settings, bytes, bytes)) {
                for (int number = 0; number < 8; number++) {
                    byte[] text = ("sent by Java " + number + " ").repeat(number * 5).getBytes(StandardCharsets.UTF_8);
                    byte[] key = number % 2 == 0 ? null : text;
                    byte[] value = number % 3 == 0 ? null : text;
                    var record = new ProducerRecord<>(topic, 0, key, value);
                    record.headers().add("null", null).add("empty", new byte[0]).add("größe", text).add("null", text);
                    producer.send(record);
                }
            }
        }
    }

    private static void consume(Properties settings, TopicPartition partition, PrintStream out) throws IOException {
        var bytes = new ByteArrayDeserializer();
        settings.put("enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    out.println(json(record));
                }
            }
        }
    }

    private static String json(ConsumerRecord<byte[], byte[]> record) {
        var headers = new StringJoiner(", ", "[", "]");
        for (Header header : record.headers()) {
            byte[] key = header.key().getBytes(StandardCharsets.UTF_8);
            headers.add("[" + hex(key) + ", " + hex(header.value()) + "]");
        }
        return String.format(
            "{\"offset\": %d, \"leader_epoch\": %s, \"timestamp_ms\": %d, \"timestamp_type\": \"%s\","
                + " \"key\": %s, \"value\": %s, \"headers\": %s}",
            record.offset(), record.leaderEpoch().map(String::valueOf).orElse("null"), record.timestamp(),
            record.timestampType(), hex(record.key()), hex(record.value()), headers);
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "null" : '"' + HexFormat.of().formatHex(bytes) + '"';
    }
}
