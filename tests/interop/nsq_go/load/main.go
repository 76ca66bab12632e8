// Load from upstream's go-nsq for the benchmarks: one line of JSON asks for a run, one line answers with its figures.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nsqio/go-nsq"
)

type request struct {
	Op         string `json:"op"`
	Address    string `json:"address"`
	Topic      string `json:"topic"`
	Channel    string `json:"channel"`
	Size       int    `json:"size"`
	Count      int    `json:"count"`
	Batch      int    `json:"batch"`
	Publishers int    `json:"publishers"`
	InFlight   int    `json:"in_flight"`
	PerSecond  int    `json:"per_second"`
	CaFile     string `json:"ca_file"`
}

type answer struct {
	Error   string  `json:"error"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

type silent struct{}

func (silent) Output(int, string) error { return nil }

// configure gives a configuration, with TLS if there is a file of certificates to trust.
func configure(asked request) (*nsq.Config, error) {
	config := nsq.NewConfig()
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
	config, err := configure(asked)
	if err != nil {
		return nil, err
	}
	made, err := nsq.NewProducer(asked.Address, config)
	if err == nil {
		made.SetLogger(silent{}, nsq.LogLevelError)
		err = made.Ping()
	}
	return made, err
}

// publish sends count messages over some producers, each of which waits for every answer.
func publish(asked request) (float64, error) {
	body := bytes.Repeat([]byte("x"), asked.Size)
	batch := make([][]byte, asked.Batch)
	for i := range batch {
		batch[i] = body
	}
	producers := []*nsq.Producer{}
	for i := 0; i < asked.Publishers; i++ {
		made, err := producer(asked)
		if err != nil {
			return 0, err
		}
		defer made.Stop()
		producers = append(producers, made)
	}
	var failed atomic.Value
	var all sync.WaitGroup
	begun := time.Now()
	for _, each := range producers {
		all.Add(1)
		go func(each *nsq.Producer) {
			defer all.Done()
			for sent := 0; sent < asked.Count/asked.Publishers; sent += asked.Batch {
				var err error
				if asked.Batch > 1 {
					err = each.MultiPublish(asked.Topic, batch)
				} else {
					err = each.Publish(asked.Topic, body)
				}
				if err != nil {
					failed.Store(err)
					return
				}
			}
		}(each)
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, err.(error)
	}
	return time.Since(begun).Seconds(), nil
}

func consumer(asked request, handle nsq.HandlerFunc, buffered bool) (*nsq.Consumer, error) {
	config, err := configure(asked)
	if err != nil {
		return nil, err
	}
	config.MaxInFlight = asked.InFlight
	if !buffered {
		config.OutputBufferTimeout = -1
		config.OutputBufferSize = -1
	}
	reader, err := nsq.NewConsumer(asked.Topic, asked.Channel, config)
	if err != nil {
		return nil, err
	}
	reader.SetLogger(silent{}, nsq.LogLevelError)
	reader.AddConcurrentHandlers(handle, 4)
	return reader, reader.ConnectToNSQD(asked.Address)
}

// consume finishes count messages.
func consume(asked request) (float64, error) {
	var seen atomic.Int64
	done := make(chan bool)
	begun := time.Now()
	reader, err := consumer(asked, func(*nsq.Message) error {
		if seen.Add(1) == int64(asked.Count) {
			close(done)
		}
		return nil
	}, true)
	if err != nil {
		return 0, err
	}
	select {
	case <-done:
	case <-time.After(120 * time.Second):
		return 0, errors.New("not all messages arrived within 120 s")
	}
	took := time.Since(begun).Seconds()
	reader.Stop()
	<-reader.StopChan
	return took, nil
}

// latency sends at a steady rate, and a consumer without output buffering notes how old each message is.
func latency(asked request) (p50, p99 float64, err error) {
	ages := make([]float64, 0, asked.Count)
	done := make(chan bool)
	var guard sync.Mutex
	reader, err := consumer(asked, func(each *nsq.Message) error {
		var sent time.Time
		if err := sent.UnmarshalBinary(each.Body[:15]); err != nil {
			return nil
		}
		guard.Lock()
		defer guard.Unlock()
		ages = append(ages, float64(time.Since(sent).Microseconds()))
		if len(ages) == asked.Count {
			close(done)
		}
		return nil
	}, false)
	if err != nil {
		return 0, 0, err
	}
	to, err := producer(asked)
	if err != nil {
		return 0, 0, err
	}
	defer to.Stop()
	answers := make(chan *nsq.ProducerTransaction, asked.Count)
	begun := time.Now()
	for i := 0; i < asked.Count; i++ {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(asked.PerSecond))))
		body := make([]byte, asked.Size)
		stamp, _ := time.Now().MarshalBinary()
		copy(body, stamp)
		if err := to.PublishAsync(asked.Topic, body, answers); err != nil {
			return 0, 0, err
		}
	}
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		return 0, 0, errors.New("not all messages arrived within 30 s")
	}
	reader.Stop()
	<-reader.StopChan
	sort.Float64s(ages)
	return ages[len(ages)/2], ages[len(ages)*99/100], nil
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		var told answer
		err = json.Unmarshal(line, &asked)
		if err == nil {
			switch asked.Op {
			case "publish":
				told.Seconds, err = publish(asked)
			case "consume":
				told.Seconds, err = consume(asked)
			default:
				told.P50, told.P99, err = latency(asked)
			}
		}
		if err != nil {
			told.Error = err.Error()
		}
		out.Encode(told)
	}
}
