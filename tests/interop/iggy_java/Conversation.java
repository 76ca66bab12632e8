import java.math.BigInteger;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.iggy.client.blocking.IggyBaseClient;
import org.apache.iggy.client.blocking.http.IggyHttpClient;
import org.apache.iggy.client.blocking.tcp.IggyTcpClient;
import org.apache.iggy.consumergroup.Consumer;
import org.apache.iggy.identifier.ConsumerId;
import org.apache.iggy.identifier.StreamId;
import org.apache.iggy.identifier.TopicId;
import org.apache.iggy.message.HeaderKey;
import org.apache.iggy.message.HeaderValue;
import org.apache.iggy.message.Message;
import org.apache.iggy.message.Partitioning;
import org.apache.iggy.message.PollingStrategy;
import org.apache.iggy.topic.CompressionAlgorithm;

/** Apache Iggy's SDK for Java over TCP and HTTP: each line says what one client saw. Arguments: port, port, stream. */
public class Conversation {
    private static final Map<HeaderKey, HeaderValue> HEADERS = new LinkedHashMap<>();

    static {
        HEADERS.put(HeaderKey.fromString("carrier"), HeaderValue.fromString("żółw"));
        HEADERS.put(HeaderKey.fromString("late"), HeaderValue.fromBool(true));
        HEADERS.put(HeaderKey.fromString("delay"), HeaderValue.fromInt32(-5));
        HEADERS.put(HeaderKey.fromString("seats"), HeaderValue.fromUint32(4000000000L));
        HEADERS.put(HeaderKey.fromString("load"), HeaderValue.fromFloat64(1.5));
        HEADERS.put(HeaderKey.fromString("trace"), HeaderValue.fromRaw(new byte[] {0, -1}));
    }

    public static void main(String[] arguments) {
        try {
            converse(arguments);
            System.exit(0);
        } catch (Throwable error) {
            // the client's threads would keep the process from ending
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void converse(String[] arguments) throws Exception {
        IggyTcpClient tcp = IggyTcpClient.builder()
                .host("127.0.0.1").port(Integer.parseInt(arguments[0])).credentials("iggy", "iggy").build();
        tcp.connect();
        IggyHttpClient http = IggyHttpClient.builder().url("http://127.0.0.1:" + arguments[1]).build();
        tcp.users().login("iggy", "iggy");
        http.users().login("iggy", "iggy");
        StreamId stream = StreamId.of(arguments[2]);
        tcp.streams().createStream(arguments[2]);
        for (String name : List.of("tcp", "http")) {
            IggyBaseClient writer = name.equals("tcp") ? tcp : http;
            TopicId topic = TopicId.of(name);
            writer.topics().createTopic(stream, 2L, CompressionAlgorithm.None, BigInteger.ZERO, BigInteger.ZERO,
                    Optional.empty(), name);
            List<Message> messages = List.of(Message.of("one", HEADERS), Message.of("two"));
            writer.messages().sendMessages(stream, topic, Partitioning.partitionId(1L), messages);
            for (IggyBaseClient reader : List.of(tcp, http)) {
                StringBuilder line = new StringBuilder(name + " to " + (reader == tcp ? "tcp" : "http") + ":");
                for (Message message : reader.messages().pollMessages(stream, topic, Optional.of(1L),
                        Consumer.of(1L), PollingStrategy.first(), 10L, false).messages()) {
                    line.append(' ').append(new String(message.payload())).append(' ')
                            .append(message.userHeaders().equals(HEADERS) ? "all" : message.userHeaders().size());
                }
                System.out.println(line);
            }
        }
        TopicId topic = TopicId.of("tcp");
        ConsumerId group = ConsumerId.of("g");
        tcp.consumerGroups().createConsumerGroup(stream, topic, "g");
        tcp.consumerGroups().joinConsumerGroup(stream, topic, group);
        long found = 0;
        for (int turn = 0; turn < 4; turn++) {
            found += tcp.messages().pollMessages(stream, topic, Optional.empty(), Consumer.group(group),
                    PollingStrategy.next(), 10L, true).count();
        }
        System.out.println("group: " + found);
        tcp.topics().updateTopic(stream, topic, CompressionAlgorithm.None, BigInteger.ZERO, BigInteger.ZERO,
                Optional.empty(), "renamed");
        http.topics().updateTopic(stream, TopicId.of("http"), CompressionAlgorithm.None, BigInteger.ZERO,
                BigInteger.ZERO, Optional.empty(), "over-http");
        tcp.streams().updateStream(stream, arguments[2] + "-tcp");
        http.streams().updateStream(StreamId.of(arguments[2] + "-tcp"), arguments[2]);
        for (String name : List.of("tcp", "renamed", "over-http")) {
            System.out.println(name + ": " + tcp.topics().getTopic(stream, TopicId.of(name))
                    .map(one -> one.name() + " " + one.messagesCount()).orElse("nothing"));
        }
        tcp.topics().updateTopic(stream, TopicId.of("renamed"), CompressionAlgorithm.None, BigInteger.ZERO,
                BigInteger.ZERO, Optional.empty(), "tcp");
        http.topics().updateTopic(stream, TopicId.of("over-http"), CompressionAlgorithm.None, BigInteger.ZERO,
                BigInteger.ZERO, Optional.empty(), "http");
        System.out.println("missing: " + tcp.streams().getStream(StreamId.of("nothing")).isPresent());
        System.out.println("streams: " + tcp.system().getStats().streamsCount() + " " + http.system().getStats().streamsCount());
    }
}
