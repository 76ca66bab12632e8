//! The Rust client of Iggy's classic generation, run against a server of our choice.
//!
//!   scenario tcp|quic HOST:PORT | scenario http URL   one JSON line a step: {"step", "ok"} or {"step", "error"}
//!   send HOST:PORT STREAM TOPIC BATCH COUNT CONNECTIONS   connection k sends to partition k, 100 B and 3 headers each
//!   poll HOST:PORT STREAM TOPIC BATCH COUNT CONNECTIONS   connection k reads partition k from its first offset
//!
//! Over QUIC these take quic://HOST:PORT. send and poll print one JSON line: messages, seconds, and the time of single requests in microseconds.

use bytes::Bytes;
use iggy::client::Client;
use iggy::consumer::Consumer;
use iggy::consumer_groups::create_consumer_group::CreateConsumerGroup;
use iggy::consumer_groups::delete_consumer_group::DeleteConsumerGroup;
use iggy::consumer_groups::get_consumer_group::GetConsumerGroup;
use iggy::consumer_groups::get_consumer_groups::GetConsumerGroups;
use iggy::consumer_groups::join_consumer_group::JoinConsumerGroup;
use iggy::consumer_groups::leave_consumer_group::LeaveConsumerGroup;
use iggy::consumer_offsets::get_consumer_offset::GetConsumerOffset;
use iggy::consumer_offsets::store_consumer_offset::StoreConsumerOffset;
use iggy::error::Error;
use iggy::http::client::HttpClient;
use iggy::identifier::Identifier;
use iggy::messages::poll_messages::{PollMessages, PollingStrategy};
use iggy::messages::send_messages::{Message, Partitioning, SendMessages};
use iggy::models::header::{HeaderKey, HeaderValue};
use iggy::partitions::create_partitions::CreatePartitions;
use iggy::partitions::delete_partitions::DeletePartitions;
use iggy::quic::client::QuicClient;
use iggy::streams::create_stream::CreateStream;
use iggy::streams::delete_stream::DeleteStream;
use iggy::streams::get_stream::GetStream;
use iggy::streams::get_streams::GetStreams;
use iggy::system::get_client::GetClient;
use iggy::system::get_clients::GetClients;
use iggy::system::get_me::GetMe;
use iggy::system::get_stats::GetStats;
use iggy::system::ping::Ping;
use iggy::tcp::client::TcpClient;
use iggy::topics::create_topic::CreateTopic;
use iggy::topics::delete_topic::DeleteTopic;
use iggy::topics::get_topic::GetTopic;
use iggy::topics::get_topics::GetTopics;
use serde::Serialize;
use std::collections::HashMap;
use std::time::Instant;

const STREAM: u32 = 1;
const TOPIC: u32 = 1;

fn stream() -> Identifier {
    Identifier::numeric(STREAM).unwrap()
}

fn topic() -> Identifier {
    Identifier::numeric(TOPIC).unwrap()
}

fn show<T: Serialize>(step: &str, result: Result<T, Error>) -> Option<T> {
    let step = serde_json::to_string(step).unwrap();
    match result {
        Ok(value) => {
            println!("{{\"step\":{},\"ok\":{}}}", step, serde_json::to_string(&value).unwrap());
            Some(value)
        }
        Err(error) => {
            println!("{{\"step\":{},\"error\":{}}}", step, serde_json::to_string(&format!("{:?}", error)).unwrap());
            None
        }
    }
}

/// One header of each of the 15 kinds, at values that show sign, width and byte order.
fn every_kind() -> HashMap<HeaderKey, HeaderValue> {
    let values = [
        ("raw", HeaderValue::from_raw(&[0, 255, 128])),
        ("string", HeaderValue::from_str("žluťoučký")),
        ("bool", HeaderValue::from_bool(true)),
        ("int8", HeaderValue::from_int8(i8::MIN)),
        ("int16", HeaderValue::from_int16(i16::MIN + 1)),
        ("int32", HeaderValue::from_int32(-3)),
        ("int64", HeaderValue::from_int64(i64::MAX)),
        ("int128", HeaderValue::from_int128(i128::MIN)),
        ("uint8", HeaderValue::from_uint8(255)),
        ("uint16", HeaderValue::from_uint16(65_534)),
        ("uint32", HeaderValue::from_uint32(4_000_000_000)),
        ("uint64", HeaderValue::from_uint64(u64::MAX)),
        ("uint128", HeaderValue::from_uint128(u128::MAX - 1)),
        ("float32", HeaderValue::from_float32(1.5)),
        ("float64", HeaderValue::from_float64(-2.5e300)),
    ];
    values.into_iter().map(|(key, value)| (HeaderKey::new(key).unwrap(), value.unwrap())).collect()
}

async fn send(client: &dyn Client, partitioning: Partitioning, messages: Vec<Message>) -> Result<(), Error> {
    let mut command = SendMessages { stream_id: stream(), topic_id: topic(), partitioning, messages };
    client.send_messages(&mut command).await
}

fn plain(id: u128, payload: &str) -> Message {
    Message::new(Some(id), Bytes::from(payload.to_string()), None)
}

fn poll(consumer: Consumer, partition_id: u32, strategy: PollingStrategy, count: u32, auto_commit: bool) -> PollMessages {
    PollMessages { consumer, stream_id: stream(), topic_id: topic(), partition_id, strategy, count, auto_commit }
}

async fn scenario(client: &dyn Client, binary: bool) {
    show("ping", client.ping(&Ping {}).await);
    show("streams before", client.get_streams(&GetStreams {}).await);
    show("create stream", client.create_stream(&CreateStream { stream_id: STREAM, name: "Rust Stream".into() }).await);
    show("create stream again", client.create_stream(&CreateStream { stream_id: STREAM, name: "x".into() }).await);
    show("create stream of the same name", client.create_stream(&CreateStream { stream_id: 2, name: "rust stream".into() }).await);
    show("get stream", client.get_stream(&GetStream { stream_id: stream() }).await);
    show("get stream by name", client.get_stream(&GetStream { stream_id: Identifier::named("rust.stream").unwrap() }).await);
    show("get missing stream", client.get_stream(&GetStream { stream_id: Identifier::numeric(9).unwrap() }).await);
    let create = CreateTopic { stream_id: stream(), topic_id: TOPIC, partitions_count: 3, name: "Kinds".into() };
    show("create topic", client.create_topic(&create).await);
    show("create topic again", client.create_topic(&create).await);
    show("add partition", client.create_partitions(&CreatePartitions { stream_id: stream(), topic_id: topic(), partitions_count: 1 }).await);
    show("delete partition", client.delete_partitions(&DeletePartitions { stream_id: stream(), topic_id: topic(), partitions_count: 1 }).await);
    show("get topic", client.get_topic(&GetTopic { stream_id: stream(), topic_id: topic() }).await);
    show("topics", client.get_topics(&GetTopics { stream_id: stream() }).await);

    let all = vec![
        Message::new(Some(7), Bytes::from("every kind"), Some(every_kind())),
        plain(u128::MAX, "largest id"),
        Message::new(None, Bytes::from(vec![0u8, 255, 10]), None),
        plain(9, "fourth"),
    ];
    show("send to partition 1", send(client, Partitioning::partition_id(1), all).await);
    show("send balanced", send(client, Partitioning::balanced(), vec![plain(21, "balanced 1")]).await);
    show("send balanced again", send(client, Partitioning::balanced(), vec![plain(22, "balanced 2")]).await);
    show("send by key k1", send(client, Partitioning::messages_key_str("k1").unwrap(), vec![plain(31, "k1")]).await);
    show("send by key user-123", send(client, Partitioning::messages_key_str("user-123").unwrap(), vec![plain(32, "user-123")]).await);
    show("send by key order-key", send(client, Partitioning::messages_key_str("order-key").unwrap(), vec![plain(33, "order-key")]).await);
    show("send to a missing partition", send(client, Partitioning::partition_id(9), vec![plain(0, "x")]).await);

    let me = || Consumer::new(5);
    let polled = show("poll offset", client.poll_messages(&poll(me(), 1, PollingStrategy::offset(0), 100, false)).await);
    let second_us = polled.and_then(|messages| messages.get(1).map(|message| message.timestamp)).unwrap_or(0);
    show("poll partition 2", client.poll_messages(&poll(me(), 2, PollingStrategy::offset(0), 100, false)).await);
    show("poll partition 3", client.poll_messages(&poll(me(), 3, PollingStrategy::offset(0), 100, false)).await);
    show("poll offset 1 count 2", client.poll_messages(&poll(me(), 1, PollingStrategy::offset(1), 2, false)).await);
    show("poll past the end", client.poll_messages(&poll(me(), 1, PollingStrategy::offset(1000), 2, false)).await);
    show("poll timestamp", client.poll_messages(&poll(me(), 1, PollingStrategy::timestamp(second_us), 1, false)).await);
    show("poll first", client.poll_messages(&poll(me(), 1, PollingStrategy::first(), 1, false)).await);
    show("poll last", client.poll_messages(&poll(me(), 1, PollingStrategy::last(), 1, false)).await);
    show("poll next", client.poll_messages(&poll(me(), 1, PollingStrategy::next(), 2, true)).await);
    show("poll next again", client.poll_messages(&poll(me(), 1, PollingStrategy::next(), 1, true)).await);
    show("get offset", client.get_consumer_offset(&GetConsumerOffset { consumer: me(), stream_id: stream(), topic_id: topic(), partition_id: 1 }).await);
    let store = |offset| StoreConsumerOffset { consumer: me(), stream_id: stream(), topic_id: topic(), partition_id: 1, offset };
    show("store offset", client.store_consumer_offset(&store(0)).await);
    show("store offset too high", client.store_consumer_offset(&store(1_000_000)).await);
    show("poll next after store", client.poll_messages(&poll(me(), 1, PollingStrategy::next(), 1, false)).await);
    show("poll missing partition", client.poll_messages(&poll(me(), 9, PollingStrategy::first(), 1, false)).await);

    let group = 1;
    let create_group = CreateConsumerGroup { stream_id: stream(), topic_id: topic(), consumer_group_id: group };
    show("create group", client.create_consumer_group(&create_group).await);
    show("create group again", client.create_consumer_group(&create_group).await);
    show("groups", client.get_consumer_groups(&GetConsumerGroups { stream_id: stream(), topic_id: topic() }).await);
    if binary {
        show("poll as no member", client.poll_messages(&poll(Consumer::group(group), 1, PollingStrategy::next(), 1, true)).await);
        show("join", client.join_consumer_group(&JoinConsumerGroup { stream_id: stream(), topic_id: topic(), consumer_group_id: group }).await);
        show("get group", client.get_consumer_group(&GetConsumerGroup { stream_id: stream(), topic_id: topic(), consumer_group_id: group }).await);
        for turn in 1..=7 {
            let command = poll(Consumer::group(group), 1, PollingStrategy::next(), 2, true);
            show(&format!("poll as member {turn}"), client.poll_messages(&command).await);
        }
        if let Some(details) = show("me", client.get_me(&GetMe {}).await) {
            show("get client", client.get_client(&GetClient { client_id: details.id }).await);
        }
        show("clients", client.get_clients(&GetClients {}).await);
        show("leave", client.leave_consumer_group(&LeaveConsumerGroup { stream_id: stream(), topic_id: topic(), consumer_group_id: group }).await);
    } else {
        show("get group", client.get_consumer_group(&GetConsumerGroup { stream_id: stream(), topic_id: topic(), consumer_group_id: group }).await);
        show("clients", client.get_clients(&GetClients {}).await);
    }
    show("delete group", client.delete_consumer_group(&DeleteConsumerGroup { stream_id: stream(), topic_id: topic(), consumer_group_id: group }).await);
    show("stats", client.get_stats(&GetStats {}).await);
    show("delete topic", client.delete_topic(&DeleteTopic { stream_id: stream(), topic_id: topic() }).await);
    show("delete stream", client.delete_stream(&DeleteStream { stream_id: stream() }).await);
    show("streams after", client.get_streams(&GetStreams {}).await);
}

fn load_headers() -> HashMap<HeaderKey, HeaderValue> {
    HashMap::from([
        (HeaderKey::new("carrier").unwrap(), HeaderValue::from_str("UAL").unwrap()),
        (HeaderKey::new("trace").unwrap(), HeaderValue::from_str("0af7651916cd43dd8448eb211c80319cdeadbeef").unwrap()),
        (HeaderKey::new("delay").unwrap(), HeaderValue::from_int32(12).unwrap()),
    ])
}

struct Load {
    address: String,
    stream: u32,
    topic: u32,
    batch: u32,
    count: u64,
    connections: u32,
}

async fn connected(address: &str) -> Box<dyn Client> {
    let mut client: Box<dyn Client> = match address.strip_prefix("quic://") {
        Some(address) => Box::new(QuicClient::new("127.0.0.1:0", address, "localhost", false).unwrap()),
        None => Box::new(TcpClient::new(address).unwrap()),
    };
    client.connect().await.unwrap();
    client
}

async fn send_load(load: &Load, partition: u32) -> Vec<u128> {
    let client = connected(&load.address).await;
    let headers = load_headers();
    let messages = (0..load.batch).map(|_| Message::new(None, Bytes::from(vec![b'x'; 100]), Some(headers.clone()))).collect();
    let mut command = SendMessages {
        stream_id: Identifier::numeric(load.stream).unwrap(),
        topic_id: Identifier::numeric(load.topic).unwrap(),
        partitioning: Partitioning::partition_id(partition),
        messages,
    };
    let mut times = Vec::new();
    for _ in 0..load.count / load.connections as u64 / load.batch as u64 {
        let began = Instant::now();
        client.send_messages(&mut command).await.unwrap();
        times.push(began.elapsed().as_micros());
    }
    times
}

async fn poll_load(load: &Load, partition: u32) -> Vec<u128> {
    let client = connected(&load.address).await;
    let (mut offset, mut times) = (0, Vec::new());
    let wanted = load.count / load.connections as u64;
    while offset < wanted {
        let command = PollMessages {
            consumer: Consumer::new(partition),
            stream_id: Identifier::numeric(load.stream).unwrap(),
            topic_id: Identifier::numeric(load.topic).unwrap(),
            partition_id: partition,
            strategy: PollingStrategy::offset(offset),
            count: load.batch,
            auto_commit: false,
        };
        let began = Instant::now();
        let messages = client.poll_messages(&command).await.unwrap();
        times.push(began.elapsed().as_micros());
        match messages.last() {
            Some(last) => offset = last.offset + 1,
            None => panic!("partition {partition} ended at {offset} of {wanted} messages"),
        }
    }
    times
}

async fn run_load(load: Load, sending: bool) {
    let load = std::sync::Arc::new(load);
    let began = Instant::now();
    let tasks: Vec<_> = (1..=load.connections)
        .map(|partition| {
            let load = load.clone();
            tokio::spawn(async move {
                if sending {
                    send_load(&load, partition).await
                } else {
                    poll_load(&load, partition).await
                }
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let seconds = began.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{{\"messages\":{},\"seconds\":{},\"requests\":{},\"p50_us\":{},\"p99_us\":{}}}",
        load.count / load.connections as u64 / load.batch as u64 * load.batch as u64 * load.connections as u64,
        seconds,
        times.len(),
        at(0.5),
        at(0.99)
    );
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["scenario", "tcp", address] => scenario(connected(address).await.as_ref(), true).await,
        ["scenario", "quic", address] => scenario(connected(&format!("quic://{address}")).await.as_ref(), true).await,
        ["scenario", "http", url] => scenario(&HttpClient::new(url).unwrap(), false).await,
        [mode @ ("send" | "poll"), address, stream, topic, batch, count, connections] => {
            let load = Load {
                address: address.into(),
                stream: stream.parse().unwrap(),
                topic: topic.parse().unwrap(),
                batch: batch.parse().unwrap(),
                count: count.parse().unwrap(),
                connections: connections.parse().unwrap(),
            };
            run_load(load, mode == "send").await
        }
        _ => {
            eprintln!("usage: scenario tcp|quic|http ADDRESS, or send|poll ADDRESS STREAM TOPIC BATCH COUNT CONNECTIONS");
            std::process::exit(2);
        }
    }
}
