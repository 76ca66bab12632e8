import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client over TLS with each SASL mechanism: a record is sent and read back. Each line of standard input is a
 * login, MECHANISM USER SECRET; one line tells what became of it. Arguments: bootstrap address, the file of certificates
 * to trust, a topic, a directory for tokens.
 */
public final class Login {
  private static final String SECURITY = "org.apache.kafka.common.security.";

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    int number = 0;
    for (String line = lines.readLine(); line != null; line = lines.readLine(), number++) {
      String[] login = line.split(" ", 3);
      Properties facts = facts(arguments, login[0], login[1], login[2], number);
      try {
        System.out.println("read: " + exchange(facts, new TopicPartition(arguments[2], 0), "java " + number));
      } catch (ExecutionException failed) {
        System.out.println("failed: " + failed.getCause());
      } catch (AuthenticationException refused) {
        System.out.println("refused: " + refused.getMessage());
      }
    }
  }

  private static Properties facts(String[] arguments, String mechanism, String user, String secret, int number)
      throws Exception {
    Properties facts = new Properties();
    facts.put("bootstrap.servers", arguments[0]);
    facts.put("security.protocol", "SASL_SSL");
    facts.put("ssl.truststore.type", "PEM");
    facts.put("ssl.truststore.location", arguments[1]);
    facts.put("sasl.mechanism", mechanism);
    if (mechanism.equals("OAUTHBEARER")) {
      Path token = Files.writeString(Path.of(arguments[3], number + ".jwt"), secret);
      System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token.toUri().toString());
      facts.put("sasl.oauthbearer.token.endpoint.url", token.toUri().toString());
      facts.put("sasl.login.callback.handler.class", SECURITY + "oauthbearer.OAuthBearerLoginCallbackHandler");
      facts.put("sasl.oauthbearer.jwt.retriever.class", SECURITY + "oauthbearer.FileJwtRetriever");
      facts.put("sasl.jaas.config", SECURITY + "oauthbearer.OAuthBearerLoginModule required;");
    } else {
      String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
      String form = SECURITY + "%s required username=\"%s\" password=\"%s\";";
      facts.put("sasl.jaas.config", String.format(form, module, user, secret));
    }
    return facts;
  }

  private static String exchange(Properties facts, TopicPartition place, String payload) throws Exception {
    try (KafkaProducer<String, String> producer =
        new KafkaProducer<>(facts, new StringSerializer(), new StringSerializer())) {
      producer.send(new ProducerRecord<>(place.topic(), 0, null, payload)).get(20, TimeUnit.SECONDS);
    }
    facts.put("auto.offset.reset", "earliest");
    try (KafkaConsumer<String, String> consumer =
        new KafkaConsumer<>(facts, new StringDeserializer(), new StringDeserializer())) {
      consumer.assign(List.of(place));
      for (int poll = 0; poll < 200; poll++) {
        for (var read : consumer.poll(Duration.ofMillis(100))) if (read.value().equals(payload)) return payload;
      }
    }
    return "nothing";
  }
}
