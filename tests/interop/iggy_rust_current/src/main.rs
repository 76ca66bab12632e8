//! The Rust client of the current Iggy, run against a server of our choice; what releases of it say otherwise is `release`.
//!
//!   write URL     creates stream and topic, sends, and prints what it polls, one JSON line a message
//!   read URL      only polls
//!   keep URL N    sends N messages one after another, and prints what became of each
//!   keep-once URL N  the same, and each message is numbered by its producer
//!   snapshot URL  prints a snapshot of everything, a ZIP archive, as hexadecimal digits
//!
//! URL is a connection string: iggy+tcp://NAME:PASSWORD@HOST:PORT, or +quic, +ws, +http.

mod release;

use bytes::Bytes;
use iggy::prelude::*;
use std::collections::BTreeMap;
use std::str::FromStr;

fn named(name: &str) -> Identifier {
    Identifier::named(name).unwrap()
}

fn message(id: u128, text: &str, headers: Option<BTreeMap<HeaderKey, HeaderValue>>) -> IggyMessage {
    let payload = Bytes::from(text.to_string());
    match headers {
        Some(headers) => IggyMessage::builder().id(id).payload(payload).user_headers(headers).build().unwrap(),
        None => IggyMessage::builder().id(id).payload(payload).build().unwrap(),
    }
}

async fn write(client: &IggyClient) {
    let stream = release::create_stream(client, "stream").await;
    assert_eq!(stream.name, "stream");
    let options = TopicCreateOptions { partitions_count: Some(1), ..Default::default() };
    let topic = client.create_topic(&named("stream"), "topic", &options).await.unwrap();
    assert_eq!((topic.name.as_str(), topic.partitions_count), ("topic", 1));
    let mut headers = BTreeMap::new();
    for (key, value) in [
        (HeaderKey::try_from("text").unwrap(), HeaderValue::try_from("žluťoučký").unwrap()),
        (HeaderKey::try_from("number").unwrap(), HeaderValue::from(i64::MIN)),
        (HeaderKey::from(7u64), HeaderValue::from(true)),
    ] {
        headers.insert(key, value);
    }
    let mut messages = vec![message(u64::MAX as u128, "with headers", Some(headers)), message(2, "plain", None)];
    let sent = client
        .send_messages(&named("stream"), &named("topic"), &Partitioning::partition_id(0), &mut messages)
        .await
        .unwrap();
    assert_eq!(sent.confirmations.len(), 1);
    assert_eq!(sent.confirmations[0].base_offset, 0);
}

async fn look_around(client: &IggyClient) {
    assert!(client.get_stream(&named("nobody")).await.unwrap().is_none());
    assert!(client.get_topic(&named("stream"), &named("nobody")).await.unwrap().is_none());
    assert_eq!(client.get_streams().await.unwrap().len(), 1);
    let topic = client.get_topic(&named("stream"), &named("topic")).await.unwrap().unwrap();
    assert_eq!((topic.id, topic.partitions[0].id, topic.messages_count), (0, 0, 2));
    assert_eq!(client.get_stats().await.unwrap().messages_count, 2);
    let consumer = Consumer::new(Identifier::from_str("7").unwrap());
    let (stream, topic) = (named("stream"), named("topic"));
    assert!(client.get_consumer_offset(&consumer, &stream, &topic, Some(0)).await.unwrap().is_none());
    client.store_consumer_offset(&consumer, &stream, &topic, Some(0), 1).await.unwrap();
    let stored = client.get_consumer_offset(&consumer, &stream, &topic, Some(0)).await.unwrap().unwrap();
    assert_eq!((stored.stored_offset, stored.current_offset, stored.partition_id), (1, 1, 0));
    client.delete_consumer_offset(&consumer, &stream, &topic, Some(0)).await.unwrap();
    let group = client.create_consumer_group(&stream, &topic, "group").await.unwrap();
    assert_eq!(group.name, "group");
    assert_eq!(client.get_consumer_groups(&stream, &topic).await.unwrap().len(), 1);
    client.delete_consumer_group(&stream, &topic, &named("group")).await.unwrap();
    client.create_partitions(&stream, &topic, 2).await.unwrap();
    client.delete_partitions(&stream, &topic, 2).await.unwrap();
    assert!(!client.describe_options(OptionsScope::Topic).await.unwrap().is_empty());
}

fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn read(client: &IggyClient) {
    let consumer = Consumer::new(Identifier::from_str("1").unwrap());
    let polled = release::poll(client, &named("stream"), &named("topic"), &consumer).await;
    for message in polled.messages {
        let headers: Vec<_> = message
            .user_headers_map()
            .unwrap()
            .unwrap_or_default()
            .iter()
            .map(|(key, value)| {
                let kinds = (key.kind().as_code(), value.kind().as_code());
                serde_json::json!([kinds.0, text_of(&key.value()), kinds.1, text_of(&value.value())])
            })
            .collect();
        println!(
            "{}",
            serde_json::json!({
                "offset": message.header.offset,
                "id": message.header.id.to_string(),
                "checksum": message.header.checksum,
                "timestamp": message.header.timestamp,
                "payload": text_of(&message.payload),
                "headers": headers,
            })
        );
    }
}

async fn keep(client: &IggyClient, count: u32, idempotent: bool) {
    let producer = release::producer(client, "stream", "topic", idempotent);
    producer.init().await.unwrap();
    for number in 0..count {
        let sent = producer.send(vec![message(0, &number.to_string(), None)]).await;
        println!("{}", serde_json::json!({ "number": number, "error": sent.err().map(|error| error.to_string()) }));
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let client = IggyClient::from_connection_string(&arguments[1]).unwrap();
    client.connect().await.unwrap();
    if arguments[1].starts_with("iggy+http") {
        // the others log in when they connect
        let (name, password) = arguments[1].split_once("://").unwrap().1.split_once('@').unwrap().0.split_once(':').unwrap();
        client.login_user(name, password).await.unwrap();
    }
    if arguments[0] == "snapshot" {
        let snapshot = client.snapshot(SnapshotCompression::Deflated, vec![SystemSnapshotType::All]).await.unwrap();
        println!("{}", serde_json::json!({ "archive": text_of(&snapshot.0) }));
        return;
    }
    if arguments[0].starts_with("keep") {
        keep(&client, arguments[2].parse().unwrap(), arguments[0] == "keep-once").await;
        return;
    }
    if arguments[0] == "write" {
        write(&client).await;
        look_around(&client).await;
    }
    read(&client).await;
}
