// One conversation of franz-go with a broker, told line by line without what only that broker knows: everything that
// the client can do with topics, records, transactions and groups. Usage: client ADDRESS NAME.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const baseMs = 1700000000000

var (
	ctx           context.Context
	address, name string
	admin         *kadm.Client
)

func main() {
	address, name = os.Args[1], os.Args[2]
	bounded, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	ctx = bounded
	plain := client()
	defer plain.Close()
	admin = kadm.NewClient(plain)
	topics()
	records()
	transactions()
	groups()
	say("end")
}

func say(form string, values ...any) {
	fmt.Println(strings.ReplaceAll(fmt.Sprintf(form, values...), name, "NAME"))
}

// code is the name of a protocol error, without the sentence that a broker may give with it.
func code(err error) string {
	if err == nil {
		return "ok"
	}
	var told *kerr.Error
	if errors.As(err, &told) {
		return told.Message
	}
	return err.Error()
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(address)}, options...)...)
	if err != nil {
		panic(err)
	}
	return made
}

func read(from *kgo.Client, count int) []*kgo.Record {
	var found []*kgo.Record
	for len(found) < count && ctx.Err() == nil {
		fetches := from.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			say("fetch: %s", code(failed.Err))
		}
		found = append(found, fetches.Records()...)
	}
	return found
}

func topics() {
	hour, more, bytes := "3600000", "7200000", "2000000"
	made, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &hour}, name)
	say("create: %s, %d partitions, %d replica", code(err), made.NumPartitions, made.ReplicationFactor)
	_, err = admin.CreateTopic(ctx, 3, 1, nil, name)
	say("create again: %s", code(err))
	_, err = admin.CreateTopic(ctx, 3, 3, nil, name+"-thrice")
	say("three replicas: %s", code(err))
	checked, err := admin.ValidateCreateTopics(ctx, 2, 1, nil, name+"-checked")
	say("check only: %s %s", code(err), code(checked[name+"-checked"].Err))
	set := []kadm.AlterConfig{{Name: "retention.ms", Value: &more}, {Name: "max.message.bytes", Value: &bytes}}
	altered, err := admin.AlterTopicConfigs(ctx, set, name)
	say("change two configs: %s %s", code(err), code(altered[0].Err))
	configs(more)
	set[0].Value = &hour
	altered, err = admin.AlterTopicConfigsState(ctx, set[:1], name)
	say("replace all by one: %s %s", code(err), code(altered[0].Err))
	configs(hour)
	grown, err := admin.CreatePartitions(ctx, 2, name)
	say("two partitions more: %s %s", code(err), code(grown[name].Err))
	listed, err := admin.ListTopics(ctx, name, name+"-missing")
	say("list: %s, %d partitions, %s", code(err), len(listed[name].Partitions), code(listed[name+"-missing"].Err))
	placed, err := admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{name: {0: {}}})
	for _, broker := range placed {
		for _, directory := range broker {
			say("directories: %s %s, %d partitions", code(err), code(directory.Err), len(directory.Topics[name]))
		}
	}
	rules, err := admin.DescribeACLs(ctx, kadm.NewACLs().AnyResource().Allow().AllowHosts().Operations())
	for _, rule := range rules {
		say("access rules: %s %s", code(err), code(rule.Err))
	}
	users, err := admin.DescribeUserSCRAMs(ctx)
	say("users: %s %d", code(err), len(users))
}

// configs waits until messages are kept for so long, which a broker may tell a moment after it was set.
func configs(retention string) {
	for ctx.Err() == nil {
		resources, err := admin.DescribeTopicConfigs(ctx, name)
		told := map[string]string{}
		for _, config := range resources[0].Configs {
			told[config.Key] = config.MaybeValue() + " " + config.Source.String()
		}
		if strings.HasPrefix(told["retention.ms"], retention+" ") {
			for _, key := range []string{"cleanup.policy", "max.message.bytes", "retention.ms"} {
				say("config: %s %s=%s", code(err), key, told[key])
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func records() {
	codecs := []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
		{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
	}
	for _, one := range codecs {
		for _, numbered := range []bool{true, false} {
			options := []kgo.Opt{kgo.ProducerBatchCompression(one.codec), kgo.RecordPartitioner(kgo.ManualPartitioner())}
			if !numbered {
				options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
			}
			producer := client(options...)
			say("%s, numbered %v: %s", one.name, numbered, code(producer.ProduceSync(ctx, batch(one.name)...).FirstErr()))
			producer.Close()
		}
	}
	start := map[string]map[int32]kgo.Offset{name: {0: kgo.NewOffset().AtStart()}}
	consumer := client(kgo.ConsumePartitions(start))
	defer consumer.Close()
	for _, record := range read(consumer, 50) {
		var headers strings.Builder
		for _, header := range record.Headers {
			fmt.Fprintf(&headers, " %q=%q/%v", header.Key, header.Value, header.Value == nil)
		}
		say("%d: %q/%v %.12q/%v of %d%s %d", record.Offset, record.Key, record.Key == nil, record.Value, record.Value == nil,
			len(record.Value), headers.String(), record.Timestamp.UnixMilli()-baseMs)
	}
	consumer.SetOffsets(map[string]map[int32]kgo.EpochOffset{name: {0: {Epoch: -1, Offset: 48}}})
	say("after a seek: %d", read(consumer, 2)[0].Offset)
	timed, err := admin.ListOffsetsAfterMilli(ctx, baseMs+2, name)
	say("since a time: %s %d", code(err), timed[name][0].Offset)
	timed, err = admin.ListMaxTimestampOffsets(ctx, name)
	say("of the latest time: %s %d", code(err), timed[name][0].Offset)
	for _, at := range []int64{20, 1000} {
		asked := kadm.Offsets{}
		asked.Add(kadm.Offset{Topic: name, Partition: 0, At: at})
		gone, err := admin.DeleteRecords(ctx, asked)
		say("delete before %d: %s %s %d", at, code(err), code(gone[name][0].Err), gone[name][0].LowWatermark)
	}
}

func batch(codec string) []*kgo.Record {
	var made []*kgo.Record
	for i := range 5 {
		record := &kgo.Record{
			Topic: name, Value: []byte(strings.Repeat(fmt.Sprint(codec, i, " "), 30)), Timestamp: time.UnixMilli(baseMs + int64(i)),
			Headers: []kgo.RecordHeader{
				{Key: "twice", Value: []byte("1")}, {Key: "twice"}, {Key: "empty", Value: []byte{}},
				{Value: []byte("no key")}, {Key: "raw\xff", Value: []byte{0, 255, 128}},
			},
		}
		switch i {
		case 1:
			record.Key = []byte{}
		case 2:
			record.Key, record.Headers = []byte("key"), nil
		case 3:
			record.Value = nil
		case 4:
			record.Value = []byte{}
		}
		made = append(made, record)
	}
	return made
}

func transactions() {
	topic := name + "-decided"
	_, err := admin.CreateTopic(ctx, 1, 1, nil, topic)
	say("create: %s", code(err))
	producer := client(kgo.TransactionalID(name+"-writer"), kgo.TransactionTimeout(30*time.Second), kgo.DefaultProduceTopic(topic))
	for i := range 3 {
		say("begin: %s", code(producer.BeginTransaction()))
		for j := range 2 {
			say("send: %s", code(producer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i, "/", j))).FirstErr()))
		}
		if i == 2 {
			open(topic)
		}
		say("end: %s", code(producer.EndTransaction(ctx, kgo.TransactionEndTry(i != 1))))
	}
	other := client(kgo.TransactionalID(name+"-writer"), kgo.DefaultProduceTopic(topic))
	say("somebody takes over: %s", code(other.BeginTransaction()))
	say("send: %s", code(other.ProduceSync(ctx, kgo.StringRecord("lost")).FirstErr()))
	producer.BeginTransaction()
	say("shut out: %v", producer.ProduceSync(ctx, kgo.StringRecord("late")).FirstErr() != nil)
	say("abort: %s", code(other.EndTransaction(ctx, kgo.TryAbort)))
	producer.Close()
	other.Close()
	consumer := client(
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	for _, record := range read(consumer, 4) {
		say("committed: %d %s", record.Offset, record.Value)
	}
	consumer.Close()
	copyOnce(topic)
}

// open says what administrators see of a transaction that is open.
func open(topic string) {
	listed, err := admin.ListTransactions(ctx, nil, []string{"Ongoing"})
	for _, one := range listed {
		if one.TxnID == name+"-writer" {
			say("open: %s %s %s", code(err), one.TxnID, one.State)
		}
	}
	described, err := admin.DescribeTransactions(ctx, name+"-writer")
	for _, one := range described {
		say("open: %s %s %d ms %v", code(err), one.State, one.TimeoutMillis, one.Topics.Sorted())
	}
	writing, err := admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {0: {}}})
	writing.EachProducer(func(one kadm.DescribedProducer) {
		say("open: %s from %d on", code(err), one.CurrentTxnStartOffset)
	})
}

// copyOnce reads, changes and writes with the positions in the same transactions.
func copyOnce(from string) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address), kgo.TransactionalID(name+"-copier"), kgo.ConsumerGroup(name+"-copiers"),
		kgo.ConsumeTopics(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(name+"-copy"), kgo.AllowAutoTopicCreation(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	say("session: %s", code(err))
	for copied := 0; copied < 4 && ctx.Err() == nil; {
		fetches := session.PollFetches(ctx)
		say("begin: %s", code(session.Begin()))
		fetches.EachRecord(func(record *kgo.Record) {
			copied++
			session.Produce(ctx, kgo.StringRecord("copy of "+string(record.Value)), nil)
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		say("end: %v %s", committed, code(err))
	}
	session.Close()
	stored, err := admin.FetchOffsets(ctx, name+"-copiers")
	for _, one := range stored.Sorted() {
		say("position: %s %s/%d %d", code(err), one.Topic, one.Partition, one.At)
	}
}

func groups() {
	topic, group := name+"-shared", name+"-group"
	_, err := admin.CreateTopic(ctx, 6, 1, nil, topic)
	say("create: %s", code(err))
	producer := client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	var sent []*kgo.Record
	for i := range 60 {
		sent = append(sent, kgo.StringRecord(fmt.Sprint(i)))
	}
	say("send: %s", code(producer.ProduceSync(ctx, sent...).FirstErr()))
	producer.Close()
	seen := map[string]int{}
	var lock sync.Mutex
	var members []*kgo.Client
	var running sync.WaitGroup
	for i := range 3 {
		options := []kgo.Opt{
			kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(100 * time.Millisecond),
		}
		if i == 1 {
			options = append(options, kgo.InstanceID("stays"))
		}
		member := client(options...)
		members = append(members, member)
		running.Go(func() {
			for {
				fetches := member.PollFetches(ctx)
				if fetches.IsClientClosed() || ctx.Err() != nil {
					return
				}
				lock.Lock()
				fetches.EachRecord(func(record *kgo.Record) { seen[string(record.Value)]++ })
				lock.Unlock()
				member.CommitUncommittedOffsets(ctx)
			}
		})
		say("%d members: %v", i+1, shares(group, i+1))
	}
	for lag := int64(1); lag != 0 && ctx.Err() == nil; {
		behind, _ := admin.Lag(ctx, group)
		lag = behind[group].Lag.Total()
	}
	lock.Lock()
	say("messages seen: %d", len(seen))
	lock.Unlock()
	busy, err := admin.DeleteGroup(ctx, group)
	say("delete with members: %s %s", code(err), code(busy.Err))
	members[2].Close()
	say("one leaves: %v", shares(group, 2))
	members[0].Close()
	members[1].Close()
	running.Wait()
	left, err := admin.LeaveGroup(ctx, kadm.LeaveGroup(group).InstanceIDs("stays"))
	say("the other two: %s %s", code(err), code(left.Error()))
	positions(topic, group)
	deleted, err := admin.DeleteTopics(ctx, topic, topic+"-missing")
	say("delete: %s %s %s", code(err), code(deleted[topic].Err), code(deleted[topic+"-missing"].Err))
}

// shares waits until a group of so many members is stable, and says how many partitions each has.
func shares(group string, count int) []int {
	for ctx.Err() == nil {
		described, _ := admin.DescribeGroups(ctx, group)
		found := described[group]
		var sizes []int
		total := 0
		for _, member := range found.Members {
			if assigned, ok := member.Assigned.AsConsumer(); ok {
				size := 0
				for _, topic := range assigned.Topics {
					size += len(topic.Partitions)
				}
				sizes = append(sizes, size)
				total += size
			}
		}
		if found.State == "Stable" && len(sizes) == count && total == 6 {
			sort.Ints(sizes)
			return sizes
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func positions(topic, group string) {
	asked := kadm.Offsets{}
	asked.Add(kadm.Offset{Topic: topic, Partition: 1, At: 3, LeaderEpoch: -1, Metadata: "text"})
	stored, err := admin.CommitOffsets(ctx, group, asked)
	say("store: %s %s", code(err), code(stored.Error()))
	found, err := admin.FetchOffsets(ctx, group)
	for _, one := range found.Sorted() {
		// beside a position franz-go stores the id of the member that was there
		say("position: %s %d %d %q", code(err), one.Partition, one.At, strings.SplitN(one.Metadata, "-", 2)[0])
	}
	removed, err := admin.DeleteOffsets(ctx, group, kadm.TopicsSet{topic: {1: {}}})
	say("delete one: %s %s", code(err), code(removed[topic][1]))
	found, err = admin.FetchOffsets(ctx, group)
	say("positions: %s %d", code(err), len(found.Sorted()))
	listed, err := admin.ListGroups(ctx, "Empty")
	say("listed: %s %s %s", code(err), listed[group].State, listed[group].ProtocolType)
	gone, err := admin.DeleteGroups(ctx, group, group+"-missing")
	say("delete group: %s %s %s", code(err), code(gone[group].Err), code(gone[group+"-missing"].Err))
	described, err := admin.DescribeGroups(ctx, group)
	say("describe: %s %s %s", code(err), described[group].State, code(described[group].Err))
}
