//! What 0.11.1 says otherwise than 0.11.0.

use iggy::prelude::*;

pub async fn create_stream(client: &IggyClient, name: &str) -> StreamDetails {
    client.create_stream(name, &StreamCreateOptions::default()).await.unwrap()
}

pub async fn poll(client: &IggyClient, stream: &Identifier, topic: &Identifier, consumer: &Consumer) -> PolledMessages {
    client.poll_messages(stream, topic, 0, consumer, &PollingStrategy::offset(0), PollOptions::default()).await.unwrap()
}

pub fn producer(client: &IggyClient, stream: &str, topic: &str, idempotent: bool) -> IggyProducer {
    let builder = client.producer(stream, topic).unwrap().partitioning(Partitioning::partition_id(0));
    if idempotent { builder.idempotent().build() } else { builder.build() }
}
