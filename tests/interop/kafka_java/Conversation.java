import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One conversation of the Java client with a broker, in steps; each prints what it saw, without anything that differs
 * from run to run. Two brokers that print the same are the same to this client. Arguments: bootstrap addresses, each
 * followed by a prefix for names. All conversations are held at the same time, and printed one after the other.
 */
public final class Conversation {
  private static final Duration POLL = Duration.ofMillis(100);
  private static final long STEP_MS = 20_000;
  private static final ThreadLocal<List<String>> LINES = ThreadLocal.withInitial(ArrayList::new);
  private final String bootstrap;
  private final String prefix;
  private final Admin admin;

  private Conversation(String bootstrap, String prefix) {
    this.bootstrap = bootstrap;
    this.prefix = prefix;
    Properties facts = new Properties();
    facts.put("bootstrap.servers", bootstrap);
    this.admin = Admin.create(facts);
  }

  public static void main(String[] arguments) throws Exception {
    List<FutureTask<List<String>>> conversations = new ArrayList<>();
    for (int i = 0; i < arguments.length; i += 2) {
      String address = arguments[i];
      String prefix = arguments[i + 1];
      FutureTask<List<String>> held = new FutureTask<>(() -> hold(address, prefix));
      conversations.add(held);
      new Thread(held).start();
    }
    for (FutureTask<List<String>> held : conversations) held.get().forEach(System.out::println);
  }

  private static List<String> hold(String address, String prefix) throws Exception {
    Conversation conversation = new Conversation(address, prefix);
    conversation.topics();
    conversation.headers("none");
    for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) conversation.headers(codec);
    conversation.errors();
    conversation.offsets();
    conversation.compacted();
    conversation.transactions();
    conversation.fencing();
    conversation.transform();
    conversation.groups("eager", RangeAssignor.class.getName());
    conversation.groups("cooperative", CooperativeStickyAssignor.class.getName());
    conversation.groupAdministration();
    conversation.admin.close();
    say("end");
    return LINES.get();
  }

  private static void say(String format, Object... values) {
    LINES.get().add(String.format(format, values));
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String shown(byte[] value) {
    return value == null ? "null" : "'" + HexFormat.of().formatHex(value) + "'";
  }

  private String named(String name) {
    return prefix + "-" + name;
  }

  private String topic(String name, int partitions) throws Exception {
    admin.createTopics(List.of(new NewTopic(named(name), partitions, (short) 1))).all().get();
    return named(name);
  }

  private KafkaProducer<byte[], byte[]> producer(String... more) {
    Properties facts = new Properties();
    facts.put("bootstrap.servers", bootstrap);
    facts.put("max.block.ms", "10000");
    for (int i = 0; i < more.length; i += 2) facts.put(more[i], more[i + 1]);
    return new KafkaProducer<>(facts, new ByteArraySerializer(), new ByteArraySerializer());
  }

  private KafkaConsumer<byte[], byte[]> consumer(String... more) {
    Properties facts = new Properties();
    facts.put("bootstrap.servers", bootstrap);
    facts.put("auto.offset.reset", "earliest");
    facts.put("enable.auto.commit", "false");
    facts.put("heartbeat.interval.ms", "200");
    facts.put("session.timeout.ms", "6000");
    for (int i = 0; i < more.length; i += 2) facts.put(more[i], more[i + 1]);
    return new KafkaConsumer<>(facts, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  /** Every record of a partition from the first on, until the position is at the end. */
  private List<ConsumerRecord<byte[], byte[]>> all(String topic, int partition, String isolation) {
    TopicPartition place = new TopicPartition(topic, partition);
    List<ConsumerRecord<byte[], byte[]>> seen = new ArrayList<>();
    try (KafkaConsumer<byte[], byte[]> consumer = consumer("isolation.level", isolation)) {
      consumer.assign(List.of(place));
      consumer.seekToBeginning(List.of(place));
      long end = consumer.endOffsets(List.of(place)).get(place);
      long until = System.currentTimeMillis() + STEP_MS;
      while (consumer.position(place) < end && System.currentTimeMillis() < until) consumer.poll(POLL).forEach(seen::add);
      say("  read %s: %d records, position %d, end %d", isolation, seen.size(), consumer.position(place), end);
    }
    return seen;
  }

  /** Apache Kafka answers a commit before its marker is written: wait until no transaction of partition 0 is open. */
  private void settle(String topic) throws Exception {
    TopicPartition place = new TopicPartition(topic, 0);
    ListOffsetsOptions committed = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
    long until = System.currentTimeMillis() + STEP_MS;
    while (System.currentTimeMillis() < until) {
      long stable = admin.listOffsets(Map.of(place, OffsetSpec.latest()), committed).all().get().get(place).offset();
      if (stable == admin.listOffsets(Map.of(place, OffsetSpec.latest())).all().get().get(place).offset()) return;
      Thread.sleep(10);
    }
  }

  private static String cause(Exception error) {
    Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
    return cause.getClass().getSimpleName();
  }

  private interface Step {
    void run() throws Exception;
  }

  private static void refused(String what, Step step) {
    try {
      step.run();
      say("%s: done", what);
    } catch (Exception error) {
      say("%s: %s", what, cause(error));
    }
  }

  private void topics() throws Exception {
    say("cluster: %d node(s), controller %b", admin.describeCluster().nodes().get().size(), admin.describeCluster().controller().get() != null);
    String topic = topic("topics", 2);
    say("topic: %d partitions", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
    AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET);
    admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
    var config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
    // a broker may answer before what was altered is what it describes
    for (int tries = 0; tries < 50 && config.get("retention.ms").isDefault(); tries++) {
      Thread.sleep(100);
      config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
    }
    for (String name : List.of("retention.ms", "cleanup.policy", "message.timestamp.type"))
      say("config %s = %s, default %b", name, config.get(name).value(), config.get(name).isDefault());
    admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
    say("topic: %d partitions", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
    refused("fewer partitions", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all().get());
    refused("created twice", () -> topic("topics", 1));
    refused("a bad name", () -> topic("not / a name", 1));
    refused("a config nobody knows", () -> admin.createTopics(List.of(new NewTopic(named("odd"), 1, (short) 1).configs(Map.of("no.such", "1")))).all().get());
    admin.deleteTopics(List.of(topic)).all().get();
    refused("deleted twice", () -> admin.deleteTopics(List.of(topic)).all().get());
  }

  private void headers(String codec) throws Exception {
    String topic = topic("headers-" + codec, 1);
    try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", codec, "linger.ms", "50")) {
      for (int i = 0; i < 3; i++) {
        List<Header> headers = new ArrayList<>();
        headers.add(new RecordHeader("via", bytes("ORD")));
        headers.add(new RecordHeader("number", new byte[] {0, (byte) i, -1}));
        headers.add(new RecordHeader("via", bytes("DEN")));
        headers.add(new RecordHeader("null", (byte[]) null));
        headers.add(new RecordHeader("", new byte[0]));
        headers.add(new RecordHeader("ключ", bytes("grüß")));
        byte[] value = i == 1 ? null : i == 2 ? new byte[0] : bytes("value");
        long offset = producer.send(new ProducerRecord<>(topic, 0, i == 0 ? null : bytes("key"), value, headers)).get().offset();
        say("sent with %s at %d", codec, offset);
      }
    }
    for (ConsumerRecord<byte[], byte[]> record : all(topic, 0, "read_committed")) {
      StringBuilder line = new StringBuilder();
      for (Header header : record.headers()) line.append(' ').append(header.key()).append('=').append(shown(header.value()));
      say("  %d %s %s%s", record.offset(), shown(record.key()), shown(record.value()), line);
      say("  last via %s", shown(record.headers().lastHeader("via").value()));
    }
  }

  private void errors() throws Exception {
    String topic = topic("errors", 1);
    try (KafkaProducer<byte[], byte[]> producer = producer("max.request.size", "20000000")) {
      refused("too large", () -> producer.send(new ProducerRecord<>(topic, new byte[2_000_000])).get());
      refused("next", () -> producer.send(new ProducerRecord<>(topic, bytes("next"))).get());
    }
    TopicPartition place = new TopicPartition(topic, 0);
    try (KafkaConsumer<byte[], byte[]> consumer = consumer("auto.offset.reset", "none")) {
      consumer.assign(List.of(place));
      consumer.seek(place, 99);
      refused("out of range", () -> {
        long until = System.currentTimeMillis() + STEP_MS;
        while (System.currentTimeMillis() < until) consumer.poll(POLL);
      });
    }
    say("  %d record(s)", all(topic, 0, "read_uncommitted").size());
  }

  private void offsets() throws Exception {
    String topic = topic("offsets", 1);
    TopicPartition place = new TopicPartition(topic, 0);
    try (KafkaProducer<byte[], byte[]> producer = producer()) {
      for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>(topic, 0, 1_000_000_000_000L + i * 1000L, null, bytes("" + i))).get();
    }
    for (Map.Entry<String, OffsetSpec> spec : new TreeMap<>(Map.of(
        "1 earliest", OffsetSpec.earliest(), "2 latest", OffsetSpec.latest(), "3 max timestamp", OffsetSpec.maxTimestamp(),
        "4 between", OffsetSpec.forTimestamp(1_000_000_004_500L), "5 after all", OffsetSpec.forTimestamp(2_000_000_000_000L))).entrySet()) {
      var found = admin.listOffsets(Map.of(place, spec.getValue())).all().get().get(place);
      say("offset %s: %d at %d", spec.getKey(), found.offset(), found.timestamp());
    }
    say("deleted before: %d", admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(place).get().lowWatermark());
    for (ConsumerRecord<byte[], byte[]> record : all(topic, 0, "read_committed")) say("  %d %s", record.offset(), shown(record.value()));
  }

  /** A topic that is to keep the last record of each key; what is asked again at once is all there. */
  private void compacted() throws Exception {
    String topic = named("compacted");
    admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(Map.of("cleanup.policy", "compact")))).all().get();
    try (KafkaProducer<byte[], byte[]> producer = producer()) {
      for (String value : Arrays.asList("1", "2", null)) producer.send(new ProducerRecord<>(topic, bytes("key"), value == null ? null : bytes(value))).get();
    }
    for (ConsumerRecord<byte[], byte[]> record : all(topic, 0, "read_committed")) say("  %s: %s", shown(record.key()), shown(record.value()));
    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
    for (AlterConfigOp.OpType how : List.of(AlterConfigOp.OpType.APPEND, AlterConfigOp.OpType.SUBTRACT)) {
      String value = how == AlterConfigOp.OpType.APPEND ? "delete" : "compact";
      admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry("cleanup.policy", value), how)))).all().get();
      String now = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("cleanup.policy").value();
      say("%s %s: %s", how, value, new TreeSet<>(List.of(now.split(","))));
    }
    refused("a policy of another name", () -> admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry("cleanup.policy", "keep"), AlterConfigOp.OpType.SET)))).all().get());
  }

  private void transactions() throws Exception {
    String topic = topic("transactions", 1);
    try (KafkaProducer<byte[], byte[]> producer = producer("transactional.id", named("writer"))) {
      producer.initTransactions();
      for (String what : List.of("commit", "abort", "commit", "abort")) {
        producer.beginTransaction();
        for (int i = 0; i < 3; i++) producer.send(new ProducerRecord<byte[], byte[]>(topic, 0, (byte[]) null, bytes(what + i), List.of(new RecordHeader("how", bytes(what)))));
        producer.flush(); // an abort drops what was not sent yet
        if (what.equals("commit")) producer.commitTransaction(); else producer.abortTransaction();
      }
      producer.beginTransaction();
      producer.send(new ProducerRecord<>(topic, bytes("open"))).get();
      for (String isolation : List.of("read_committed", "read_uncommitted"))
        for (ConsumerRecord<byte[], byte[]> record : all(topic, 0, isolation)) say("  %d %s", record.offset(), shown(record.value()));
      producer.commitTransaction();
    }
    settle(topic);
    all(topic, 0, "read_committed");
    followed();
  }

  /** A group that stops behind the end of a transaction goes on there when it comes back. */
  private void followed() throws Exception {
    String topic = topic("followed", 1);
    TopicPartition place = new TopicPartition(topic, 0);
    try (KafkaProducer<byte[], byte[]> producer = producer("transactional.id", named("followed"))) {
      producer.initTransactions();
      for (int round = 0; round < 3; round++) {
        producer.beginTransaction();
        for (int i = 0; i < 3; i++) producer.send(new ProducerRecord<>(topic, bytes(round + "." + i)));
        producer.commitTransaction();
        long end = admin.listOffsets(Map.of(place, OffsetSpec.latest())).all().get().get(place).offset();
        say("round %d: the latest time is at %d", round, admin.listOffsets(Map.of(place, OffsetSpec.maxTimestamp())).all().get().get(place).offset() / 4);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", named("follower"), "isolation.level", "read_committed")) {
          consumer.subscribe(List.of(topic));
          List<ConsumerRecord<byte[], byte[]>> seen = new ArrayList<>();
          long until = System.currentTimeMillis() + STEP_MS;
          while (System.currentTimeMillis() < until && (consumer.assignment().isEmpty() || consumer.position(place) < end)) consumer.poll(POLL).forEach(seen::add);
          consumer.commitSync();
          for (ConsumerRecord<byte[], byte[]> record : seen) say("  %d %s", record.offset(), shown(record.value()));
        }
      }
    }
  }

  private void fencing() throws Exception {
    String topic = topic("fencing", 1);
    try (KafkaProducer<byte[], byte[]> first = producer("transactional.id", named("fenced")); KafkaProducer<byte[], byte[]> second = producer("transactional.id", named("fenced"))) {
      first.initTransactions();
      first.beginTransaction();
      first.send(new ProducerRecord<>(topic, bytes("lost"))).get();
      second.initTransactions();
      second.beginTransaction();
      second.send(new ProducerRecord<>(topic, bytes("kept"))).get();
      refused("the older commits", first::commitTransaction);
      refused("the newer commits", second::commitTransaction);
    }
    settle(topic);
    for (ConsumerRecord<byte[], byte[]> record : all(topic, 0, "read_committed")) say("  %s", shown(record.value()));
  }

  /** Consume, transform, produce: positions are part of the transaction. */
  private void transform() throws Exception {
    String from = topic("transform-from", 1);
    String to = topic("transform-to", 1);
    try (KafkaProducer<byte[], byte[]> producer = producer()) {
      for (int i = 0; i < 6; i++) producer.send(new ProducerRecord<>(from, bytes("" + i))).get();
    }
    TopicPartition place = new TopicPartition(from, 0);
    for (String how : List.of("abort", "commit", "commit")) {
      try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", named("transform"), "max.poll.records", "3", "isolation.level", "read_committed");
          KafkaProducer<byte[], byte[]> producer = producer("transactional.id", named("transformer"))) {
        producer.initTransactions();
        consumer.subscribe(List.of(from));
        List<ConsumerRecord<byte[], byte[]>> seen = some(consumer, 3);
        producer.beginTransaction();
        for (ConsumerRecord<byte[], byte[]> record : seen) producer.send(new ProducerRecord<>(to, bytes(how + shown(record.value()))));
        long next = seen.get(seen.size() - 1).offset() + 1;
        producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(next, "by " + how)), consumer.groupMetadata());
        producer.flush();
        if (how.equals("commit")) producer.commitTransaction(); else producer.abortTransaction();
        OffsetAndMetadata committed = consumer.committed(Set.of(place)).get(place);
        say("after %s: %s", how, committed == null ? "nothing" : committed.offset() + " " + committed.metadata());
      }
    }
    settle(to);
    for (ConsumerRecord<byte[], byte[]> record : all(to, 0, "read_committed")) say("  %s", new String(record.value(), StandardCharsets.UTF_8));
  }

  private List<ConsumerRecord<byte[], byte[]>> some(KafkaConsumer<byte[], byte[]> consumer, int count) {
    List<ConsumerRecord<byte[], byte[]>> seen = new ArrayList<>();
    long until = System.currentTimeMillis() + STEP_MS;
    while (seen.size() < count && System.currentTimeMillis() < until) consumer.poll(POLL).forEach(seen::add);
    return seen;
  }

  /** Two members share four partitions; one leaves, the other has all. */
  private void groups(String name, String assignor) throws Exception {
    String topic = topic("group-" + name, 4);
    String group = named("group-" + name);
    try (KafkaProducer<byte[], byte[]> producer = producer()) {
      for (int i = 0; i < 40; i++) producer.send(new ProducerRecord<>(topic, i % 4, null, bytes("" + i))).get();
    }
    String[] facts = {"group.id", group, "partition.assignment.strategy", assignor};
    Set<String> seen = new TreeSet<>();
    int twice = 0;
    KafkaConsumer<byte[], byte[]> one = consumer(facts);
    KafkaConsumer<byte[], byte[]> two = consumer(facts);
    one.subscribe(List.of(topic));
    two.subscribe(List.of(topic));
    long until = System.currentTimeMillis() + STEP_MS;
    while (System.currentTimeMillis() < until && (one.assignment().size() != 2 || two.assignment().size() != 2))
      for (KafkaConsumer<byte[], byte[]> member : List.of(one, two))
        for (ConsumerRecord<byte[], byte[]> record : member.poll(Duration.ofMillis(20))) {
          seen.add(record.partition() + ":" + record.offset());
          member.commitSync();
        }
    say("%s: %d and %d partitions", name, one.assignment().size(), two.assignment().size());
    two.close();
    until = System.currentTimeMillis() + STEP_MS;
    while (System.currentTimeMillis() < until && (one.assignment().size() != 4 || seen.size() < 40))
      for (ConsumerRecord<byte[], byte[]> record : one.poll(POLL)) seen.add(record.partition() + ":" + record.offset());
    one.commitSync();
    say("%s: %d partitions after one left, %d of 40 seen", name, one.assignment().size(), seen.size());
    var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    say("%s: %s, %d member(s), %s", name, described.groupState(), described.members().size(), described.partitionAssignor());
    refused("deleted with members", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
    one.close();
    Map<TopicPartition, OffsetAndMetadata> positions = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
    say("%s: positions %s", name, new TreeSet<>(positions.values().stream().map(OffsetAndMetadata::offset).toList()));
  }

  private void groupAdministration() throws Exception {
    String topic = topic("positions", 1);
    String group = named("positions");
    TopicPartition place = new TopicPartition(topic, 0);
    try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", group)) {
      consumer.assign(List.of(place));
      consumer.commitSync(Map.of(place, new OffsetAndMetadata(7, Optional.empty(), "grüß")));
      OffsetAndMetadata committed = consumer.committed(Set.of(place)).get(place);
      say("committed %d %s", committed.offset(), committed.metadata());
    }
    Collection<String> ids = new TreeSet<>(admin.listGroups().all().get().stream().map(row -> row.groupId()).toList());
    say("listed: %b", ids.contains(group));
    admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(3))).all().get();
    say("altered to %d", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(place).offset());
    admin.deleteConsumerGroups(Arrays.asList(group)).all().get();
    refused("deleted again", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
  }
}
