// franz-go over TLS with each SASL mechanism: a record is sent and read back. Each line of standard input is a login,
// MECHANISM USER SECRET; one line tells what became of it. Usage: client ADDRESS CA_FILE TOPIC.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func mechanism(name, user, secret string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: secret}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: secret}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: secret}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: secret}.AsMechanism()
	}
	panic(name)
}

func exchange(trusted *x509.CertPool, by sasl.Mechanism, payload string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]), kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}), kgo.SASL(by),
		kgo.ConsumeTopics(os.Args[3]), kgo.RequestRetries(0), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return "", err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return "", err
	}
	record := &kgo.Record{Topic: os.Args[3], Value: []byte(payload)}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return "", err
	}
	for {
		fetches := client.PollFetches(ctx)
		if failed := fetches.Errors(); len(failed) > 0 {
			return "", failed[0].Err
		}
		for _, read := range fetches.Records() {
			if string(read.Value) == payload {
				return payload, nil
			}
		}
	}
}

func main() {
	pem, err := os.ReadFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	lines := bufio.NewScanner(os.Stdin)
	for number := 0; lines.Scan(); number++ {
		login := strings.SplitN(lines.Text(), " ", 3)
		read, err := exchange(trusted, mechanism(login[0], login[1], login[2]), fmt.Sprintf("franz %d", number))
		var told *kerr.Error
		if errors.As(err, &told) {
			fmt.Println("refused:", told.Message)
		} else if err != nil {
			fmt.Println("failed:", err)
		} else {
			fmt.Println("read:", read)
		}
	}
}
