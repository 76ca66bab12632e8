//! What 0.11.0 says otherwise than later releases.

use iggy::prelude::*;

pub async fn create_stream(client: &IggyClient, name: &str) -> StreamDetails {
    client.create_stream(name).await.unwrap()
}

pub async fn poll(client: &IggyClient, stream: &Identifier, topic: &Identifier, consumer: &Consumer) -> PolledMessages {
    client.poll_messages(stream, topic, Some(0), consumer, &PollingStrategy::offset(0), 100, false).await.unwrap()
}

pub fn producer(client: &IggyClient, stream: &str, topic: &str, idempotent: bool) -> IggyProducer {
    assert!(!idempotent, "this release does not number messages");
    client.producer(stream, topic).unwrap().partitioning(Partitioning::partition_id(0)).build()
}
