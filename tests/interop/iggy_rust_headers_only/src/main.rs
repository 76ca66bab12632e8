//! The Rust client of Iggy 0.0.30, run against a server of our choice.
//!
//!   tcp HOST:PORT | http URL     creates stream 1 and topic 1, sends, and prints what it polls, one JSON line a message
//!   read tcp HOST:PORT | read http URL     only polls

use bytes::Bytes;
use iggy::client::Client;
use iggy::consumer::Consumer;
use iggy::header::{HeaderKey, HeaderValue};
use iggy::http::client::HttpClient;
use iggy::identifier::Identifier;
use iggy::messages::poll_messages::{PollMessages, PollingStrategy};
use iggy::messages::send_messages::{Message, Partitioning, SendMessages};
use iggy::streams::create_stream::CreateStream;
use iggy::tcp::client::TcpClient;
use iggy::topics::create_topic::CreateTopic;
use std::collections::HashMap;

fn one() -> Identifier {
    Identifier::numeric(1).unwrap()
}

fn message(id: u128, text: &str, headers: Option<HashMap<HeaderKey, HeaderValue>>) -> Message {
    Message { id, length: text.len() as u32, payload: Bytes::from(text.to_string()), headers }
}

async fn write(client: &dyn Client) {
    client.create_stream(&CreateStream { stream_id: 1, name: "stream".into() }).await.unwrap();
    let topic = CreateTopic { stream_id: one(), topic_id: 1, partitions_count: 1, name: "topic".into() };
    client.create_topic(&topic).await.unwrap();
    let headers = [
        ("text", HeaderValue::from_str("žluťoučký")),
        ("number", HeaderValue::from_int64(i64::MIN)),
        ("flag", HeaderValue::from_bool(true)),
    ];
    let headers: HashMap<_, _> = headers.into_iter().map(|(key, value)| (HeaderKey::new(key).unwrap(), value.unwrap())).collect();
    let messages = vec![
        message(u128::MAX, "with headers", Some(headers)),
        message(2, "plain", None),
    ];
    let mut send = SendMessages { stream_id: one(), topic_id: one(), partitioning: Partitioning::partition_id(1), messages };
    client.send_messages(&mut send).await.unwrap();
}

async fn read(client: &dyn Client) {
    let poll = PollMessages {
        consumer: Consumer::new(1),
        stream_id: one(),
        topic_id: one(),
        partition_id: 1,
        strategy: PollingStrategy::offset(0),
        count: 100,
        auto_commit: false,
    };
    for message in client.poll_messages(&poll).await.unwrap() {
        println!("{}", serde_json::to_string(&message).unwrap());
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let only_reads = arguments[0] == "read";
    let place = &arguments[only_reads as usize..];
    let client: Box<dyn Client> = match place[0].as_str() {
        "tcp" => Box::new(TcpClient::new(&place[1]).unwrap()),
        _ => Box::new(HttpClient::new(&place[1]).unwrap()),
    };
    let mut client = client;
    client.connect().await.unwrap();
    if !only_reads {
        write(client.as_ref()).await;
    }
    read(client.as_ref()).await;
}
