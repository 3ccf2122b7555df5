import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ's decoder over the same commit-log bytes again and again, in one thread.
 *
 * Argument: a file of whole records. First it says what they hold: "records, bytes of bodies, properties". Then, for
 * each line on standard input, a time in seconds, it decodes all of them as often as begins within that time, and says
 * "records, nanoseconds".
 */
public class Decode {
    record Found(long records, long bodyBytes, long properties) {}

    static final PrintStream answers = System.out;

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);  // where the client's logging goes
        ByteBuffer log = ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[0])));
        Found expected = decode(log);
        answers.println(expected.records + " " + expected.bodyBytes + " " + expected.properties);
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            measure(log, (long) (Double.parseDouble(line) * 1e9), expected);
        }
    }

    static void measure(ByteBuffer log, long leastNanos, Found expected) {
        long records = 0;
        long begun = System.nanoTime();
        while (System.nanoTime() - begun < leastNanos) {
            Found found = decode(log);
            if (!found.equals(expected)) {
                throw new IllegalStateException("decoded " + found + ", not " + expected);
            }
            records += found.records;
        }
        answers.println(records + " " + (System.nanoTime() - begun));
    }

    static Found decode(ByteBuffer log) {
        long records = 0;
        long bodyBytes = 0;
        long properties = 0;
        log.rewind();
        while (log.hasRemaining()) {
            int at = log.position();
            MessageExt message = MessageDecoder.decode(log, true, true, false, false, true);  // …, its CRC checked
            if (message == null) {
                throw new IllegalStateException("the record at " + at + " cannot be decoded");
            }
            records++;
            bodyBytes += message.getBody().length;
            properties += message.getProperties().size();
        }
        return new Found(records, bodyBytes, properties);
    }
}
