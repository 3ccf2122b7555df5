import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Traffic of a real RocketMQ client, of every kind that the views tell apart. It says what it did on standard output,
 * a line for each act, fields separated by tabs:
 *
 * sent      fate, topic, queue, queue offset, offset message id, unique key, keys, tags, body in hexadecimal; the
 *           numbers and the id are of where the broker put it first
 * checked   unique key of a transaction that the broker asked for
 *
 * Arguments: the address of a name server; "all" for some of everything, or "grow" for messages without end. With "all"
 * it waits for a byte on standard input before it sends transactions that are to stay pending, with "grow" it ends then.
 */
public class Traffic {
    static final int SECOND_LEVEL = 1;
    static final int HALF_HOUR_LEVEL = 16;
    static final int ORDERS = 12;
    static final int ORDERS_AFTER_CONSUMPTION = 5;
    static final long HOUR_MS = 3_600_000;
    static final CountDownLatch vainChecks = new CountDownLatch(2 * 3);  // of what the broker then gives up
    static String names;

    public static void main(String[] arguments) {
        names = arguments[0];
        try {
            run(arguments);
            System.exit(0);  // the client leaves threads behind
        } catch (Exception failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    static void run(String[] arguments) throws Exception {
        DefaultMQProducer shop = started(new DefaultMQProducer("shop"));
        TransactionMQProducer bank = new TransactionMQProducer("bank");
        bank.setTransactionListener(new Deciding());
        started(bank);
        if (arguments[1].equals("all")) {
            all(shop, bank);
        } else {
            grow(shop, bank);
        }
        shop.shutdown();
        bank.shutdown();
    }

    static void all(DefaultMQProducer shop, TransactionMQProducer bank) throws Exception {
        for (String fate : List.of("committed", "rolled_back", "late_committed", "late_rolled_back", "given_up")) {
            transfer(bank, fate);
            transfer(bank, fate);
        }
        timers(shop);
        delays(shop);
        orders(shop, 0, ORDERS);
        binaries(shop);
        for (String topic : List.of("batches", "inner")) {
            batch(shop, topic, 5);
            send("stored", shop, new Message(topic, "single", "single-" + topic, text("alone")));
            batch(shop, topic, 3);
        }
        for (String fate : List.of("recovers", "dies", "dies_at_once", "waits")) {
            send(fate, shop, withFate(new Message("refunds", fate, "refund-" + fate, text(fate)), fate));
        }
        CountDownLatch consumptions = new CountDownLatch(ORDERS + 6);  // two of "recovers", two of "dies"
        DefaultMQPushConsumer billing = consumer("billing", "orders", consumptions);
        DefaultMQPushConsumer refunding = consumer("refunding", "refunds", consumptions);
        await(consumptions);
        billing.shutdown();
        refunding.shutdown();
        orders(shop, ORDERS, ORDERS + ORDERS_AFTER_CONSUMPTION);
        await(vainChecks);
        System.in.read();
        transfer(bank, "pending");
        transfer(bank, "immune");
    }

    static void await(CountDownLatch acts) throws InterruptedException {
        if (!acts.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(acts.getCount() + " acts of the broker did not come");
        }
    }

    /** Transactions, most of them committed, and orders, until there is a byte on standard input. */
    static void grow(DefaultMQProducer shop, TransactionMQProducer bank) throws Exception {
        for (int number = ORDERS + ORDERS_AFTER_CONSUMPTION; System.in.available() == 0; number++) {
            transfer(bank, number % 5 == 0 ? "rolled_back" : "committed");
            orders(shop, number, number + 1);
            TimeUnit.MILLISECONDS.sleep(20);
        }
    }

    static void orders(DefaultMQProducer shop, int start, int end) throws Exception {
        for (int number = start; number < end; number++) {
            String body = "{\"order\": " + number + ", \"customer\": \"Grüße " + number % 3 + "\", \"lines\": [1, 2.5, null]}";
            Message order = new Message("orders", number % 2 == 0 ? "created" : "paid", text(body));
            order.setKeys(List.of("order-" + number, "customer-" + number % 3));
            order.putUserProperty("channel", "web");
            send("stored", shop, order);
        }
    }

    /** No text, without keys and tags; what the client compresses; what is in more queues than its own. */
    static void binaries(DefaultMQProducer shop) throws Exception {
        byte[] every = new byte[256];
        for (int value = 0; value < every.length; value++) {
            every[value] = (byte) value;
        }
        send("stored", shop, new Message("telemetry", every));
        send("stored", shop, new Message("telemetry", Arrays.copyOf(every, 9000)));
        Message light = new Message("telemetry", text("light"));
        MessageAccessor.putProperty(light, MessageConst.PROPERTY_INNER_MULTI_DISPATCH, "%LMQ%one,%LMQ%two");
        send("stored", shop, light);
    }

    static void batch(DefaultMQProducer shop, String topic, int count) throws Exception {
        Message[] messages = new Message[count];
        for (int number = 0; number < count; number++) {
            messages[number] = new Message(topic, "item", "item-" + number, text("{\"item\": " + number + "}"));
        }
        sent("stored", shop.send(Arrays.asList(messages)), messages);
    }

    static void delays(DefaultMQProducer shop) throws Exception {
        for (int level : new int[] {SECOND_LEVEL, SECOND_LEVEL, HALF_HOUR_LEVEL}) {
            Message message = new Message("reminders", "late", "reminder-" + level, text("level " + level));
            message.setDelayTimeLevel(level);
            send(level == SECOND_LEVEL ? "delivered" : "pending", shop, message);
        }
    }

    /** Due soon; due after the wheel has rolled once; due in an hour; due in an hour and called back. */
    static void timers(DefaultMQProducer shop) throws Exception {
        for (long delay : new long[] {1500, 6000, HOUR_MS}) {
            send(delay == HOUR_MS ? "pending" : "delivered", shop, alarm(delay));
        }
        SendResult result = send("cancelled", shop, alarm(HOUR_MS));
        shop.recallMessage("alarms", result.getRecallHandle());
    }

    static Message alarm(long delay) {
        Message alarm = new Message("alarms", "timed", "alarm-" + delay, text("in " + delay + " ms"));
        alarm.setDelayTimeMs(delay);
        return alarm;
    }

    static void transfer(TransactionMQProducer bank, String fate) throws Exception {
        Message transfer = withFate(new Message("transfers", fate, "transfer-" + fate, text("{\"fate\": \"" + fate + "\"}")), fate);
        if (fate.equals("immune")) {  // pending, and put again without being asked for
            MessageAccessor.putProperty(transfer, MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, "3600");
        }
        sent(fate, bank.sendMessageInTransaction(transfer, null), transfer);
    }

    /** The fate of a transaction tells what becomes of it, at once or when the broker asks. */
    static class Deciding implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message half, Object argument) {
            return stateOf(half, "");
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt half) {
            say("checked", MessageClientIDSetter.getUniqID(half));
            if (half.getUserProperty("fate").equals("given_up")) {
                vainChecks.countDown();
            }
            return stateOf(half, "late_");
        }

        static LocalTransactionState stateOf(Message half, String when) {
            String fate = half.getUserProperty("fate");
            if (fate.equals(when + "committed")) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
            return fate.equals(when + "rolled_back") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }

    /** Consumes what has no fate; a fate tells how often it fails, and what is to become of it then. */
    static class Consuming implements MessageListenerConcurrently {
        final CountDownLatch consumptions;

        Consuming(CountDownLatch consumptions) {
            this.consumptions = consumptions;
        }

        @Override
        public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            MessageExt message = messages.get(0);  // one at a time, unless told otherwise
            String fate = message.getProperties().getOrDefault("fate", "");
            int times = message.getReconsumeTimes();
            consumptions.countDown();
            if (fate.isEmpty() || fate.equals("recovers") && times > 0) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            int waitingLevel = fate.equals("waits") ? HALF_HOUR_LEVEL : SECOND_LEVEL;
            context.setDelayLevelWhenNextConsume(fate.equals("dies_at_once") ? -1 : waitingLevel);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
    }

    static DefaultMQPushConsumer consumer(String group, String topic, CountDownLatch consumptions) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(1);
        consumer.setPollNameServerInterval(500);  // its retry topic is made when it is there
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(new Consuming(consumptions));
        consumer.start();
        return consumer;
    }

    static <T extends DefaultMQProducer> T started(T producer) throws Exception {
        producer.setNamesrvAddr(names);
        producer.setInstanceName(producer.getProducerGroup());
        producer.setSendMsgTimeout(20_000);
        producer.start();
        return producer;
    }

    static SendResult send(String fate, DefaultMQProducer producer, Message message) throws Exception {
        SendResult result = producer.send(message);
        sent(fate, result, message);
        return result;
    }

    static void sent(String fate, SendResult result, Message... messages) {
        String named = result.getOffsetMsgId() == null ? "" : result.getOffsetMsgId();  // a transaction is told none
        String[] ids = named.split(",");  // an inner batch is one record
        for (int at = 0; at < messages.length; at++) {
            Message message = messages[at];
            String keys = message.getKeys() == null ? "" : message.getKeys();
            String tags = message.getTags() == null ? "" : message.getTags();
            say("sent", fate, message.getTopic(), result.getMessageQueue().getQueueId(), result.getQueueOffset() + at,
                ids[Math.min(at, ids.length - 1)], MessageClientIDSetter.getUniqID(message), keys, tags,
                HexFormat.of().formatHex(message.getBody()));
        }
    }

    static Message withFate(Message message, String fate) {
        message.putUserProperty("fate", fate);
        return message;
    }

    static byte[] text(String body) {
        return body.getBytes(StandardCharsets.UTF_8);
    }

    static void say(Object... fields) {
        System.out.println(String.join("\t", Arrays.stream(fields).map(String::valueOf).toList()));
    }
}
