//! What 0.11.1 says otherwise than 0.11.0.

use iggy::prelude::*;

pub async fn create_stream(client: &IggyClient, name: &str) -> StreamDetails {
    client.create_stream(name, &StreamCreateOptions::default()).await.unwrap()
}

pub async fn poll(client: &IggyClient, stream: &Identifier, topic: &Identifier, consumer: &Consumer) -> PolledMessages {
    client.poll_messages(stream, topic, 0, consumer, &PollingStrategy::offset(0), PollOptions::default()).await.unwrap()
}
