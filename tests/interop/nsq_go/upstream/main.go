// Upstream's go-nsq, told what to do by lines of JSON on standard input; one line of JSON answers each.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/nsqio/go-nsq"
)

type request struct {
	Op        string   `json:"op"`
	Address   string   `json:"address"`
	Lookupd   string   `json:"lookupd"`
	Topic     string   `json:"topic"`
	Channel   string   `json:"channel"`
	Bodies    [][]byte `json:"bodies"`
	Multi     bool     `json:"multi"`
	DelayMs   int      `json:"delay_ms"`
	Count     int      `json:"count"`
	InFlight  int      `json:"in_flight"`
	TimeoutMs int      `json:"timeout_ms"`
	Refuse    int      `json:"refuse"`
	CaFile    string   `json:"ca_file"`
	Secret    string   `json:"secret"`
}

type message struct {
	Id       string `json:"id"`
	Body     []byte `json:"body"`
	Attempts uint16 `json:"attempts"`
	TimeNs   int64  `json:"time_ns"`
}

type answer struct {
	Error    string    `json:"error"`
	Messages []message `json:"messages"`
}

type silent struct{}

func (silent) Output(int, string) error { return nil }

var producers = map[string]*nsq.Producer{}

// configure gives a configuration with what AUTH shows, and with TLS if there is a file of certificates to trust.
func configure(asked request) (*nsq.Config, error) {
	config := nsq.NewConfig()
	config.AuthSecret = asked.Secret
	if asked.CaFile == "" {
		return config, nil
	}
	pem, err := os.ReadFile(asked.CaFile)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	config.TlsV1 = true
	config.TlsConfig = &tls.Config{RootCAs: trusted}
	return config, nil
}

func producer(asked request) (*nsq.Producer, error) {
	address, own := asked.Address, asked.Address+" "+asked.Secret
	if known := producers[own]; known != nil {
		return known, nil
	}
	config, err := configure(asked)
	if err != nil {
		return nil, err
	}
	made, err := nsq.NewProducer(address, config)
	if err != nil {
		return nil, err
	}
	made.SetLogger(silent{}, nsq.LogLevelError)
	producers[own] = made
	return made, nil
}

func publish(asked request) error {
	to, err := producer(asked)
	if err != nil {
		return err
	}
	if asked.Multi {
		return to.MultiPublish(asked.Topic, asked.Bodies)
	}
	for _, body := range asked.Bodies {
		if asked.DelayMs > 0 {
			err = to.DeferredPublish(asked.Topic, time.Duration(asked.DelayMs)*time.Millisecond, body)
		} else {
			err = to.Publish(asked.Topic, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func consume(asked request) ([]message, error) {
	config, err := configure(asked)
	if err != nil {
		return nil, err
	}
	config.MaxInFlight = asked.InFlight
	config.MaxAttempts = 0
	config.LookupdPollInterval = 100 * time.Millisecond
	config.LookupdPollJitter = 0
	config.DefaultRequeueDelay = 0
	config.MaxBackoffDuration = 0
	reader, err := nsq.NewConsumer(asked.Topic, asked.Channel, config)
	if err != nil {
		return nil, err
	}
	reader.SetLogger(silent{}, nsq.LogLevelError)
	arrived := make(chan *nsq.Message, 1024)
	reader.AddHandler(nsq.HandlerFunc(func(each *nsq.Message) error {
		each.DisableAutoResponse()
		arrived <- each
		return nil
	}))
	if asked.Lookupd != "" {
		err = reader.ConnectToNSQLookupd(asked.Lookupd)
	} else {
		err = reader.ConnectToNSQD(asked.Address)
	}
	if err != nil {
		return nil, err
	}
	seen := []message{}
	limit := time.After(time.Duration(asked.TimeoutMs) * time.Millisecond)
	for refused := 0; len(seen) < asked.Count; {
		select {
		case each := <-arrived:
			if refused < asked.Refuse {
				refused++
				each.RequeueWithoutBackoff(0)
				continue
			}
			seen = append(seen, message{fmt.Sprintf("%s", each.ID), each.Body, each.Attempts, each.Timestamp})
			if len(seen) == asked.Count {
				// nothing may follow the last one: what nobody answers holds up the end for a minute
				reader.ChangeMaxInFlight(0)
			}
			each.Finish()
		case <-limit:
			goto done
		}
	}
done:
	reader.Stop()
	for {
		select {
		case each := <-arrived:
			each.RequeueWithoutBackoff(0)
		case <-reader.StopChan:
			return seen, nil
		}
	}
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<26)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var asked request
		var told answer
		err = json.Unmarshal(line, &asked)
		if err == nil && asked.Op == "publish" {
			err = publish(asked)
		} else if err == nil {
			told.Messages, err = consume(asked)
		}
		if err != nil {
			told.Error = err.Error()
		}
		out.Encode(told)
	}
	for _, each := range producers {
		each.Stop()
	}
}
