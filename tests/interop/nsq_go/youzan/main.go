// Youzan's go-nsq with extend headers, told what to do by lines of JSON on standard input; one line of JSON answers each.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/youzan/go-nsq"
)

type request struct {
	Op        string                   `json:"op"`
	Address   string                   `json:"address"`
	Topic     string                   `json:"topic"`
	Partition string                   `json:"partition"`
	Channel   string                   `json:"channel"`
	Bodies    [][]byte                 `json:"bodies"`
	Exts      []map[string]interface{} `json:"exts"`
	Tags      []string                 `json:"tags"`
	Trace     uint64                   `json:"trace"`
	Plain     bool                     `json:"plain"`
	Tag       string                   `json:"tag"`
	Count     int                      `json:"count"`
	InFlight  int                      `json:"in_flight"`
	TimeoutMs int                      `json:"timeout_ms"`
}

type message struct {
	Id       string `json:"id"`
	Trace    uint64 `json:"trace"`
	Body     []byte `json:"body"`
	Attempts uint16 `json:"attempts"`
	Version  uint8  `json:"version"`
	Ext      string `json:"ext"`
}

type answer struct {
	Error    string    `json:"error"`
	Answers  []string  `json:"answers"`
	Messages []message `json:"messages"`
}

type silent struct{}

func (silent) Output(int, string) error { return nil }

var producers = map[string]*nsq.Producer{}

func producer(address string) (*nsq.Producer, error) {
	if known := producers[address]; known != nil {
		return known, nil
	}
	made, err := nsq.NewProducer(address, nsq.NewConfig())
	if err != nil {
		return nil, err
	}
	made.SetLogger(silent{}, nsq.LogLevelError)
	producers[address] = made
	return made, nil
}

func publish(asked request) ([]string, error) {
	to, err := producer(asked.Address)
	if err != nil {
		return nil, err
	}
	answers := []string{}
	done := make(chan *nsq.ProducerTransaction, 1)
	for i, body := range asked.Bodies {
		if asked.Plain {
			err = to.Publish(asked.Topic, body)
			if err != nil {
				return answers, err
			}
			continue
		}
		ext := &nsq.MsgExt{TraceID: asked.Trace, Custom: map[string]interface{}{}}
		if i < len(asked.Exts) {
			for key, value := range asked.Exts[i] {
				ext.Custom[key] = value
			}
		}
		if i < len(asked.Tags) {
			ext.DispatchTag = asked.Tags[i]
		}
		err = sendAsync(to, asked, body, ext, done)
		if err != nil {
			return answers, err
		}
		select {
		case told := <-done:
			if told.Error != nil {
				return answers, told.Error
			}
			answers = append(answers, hex.EncodeToString(told.ResponseData))
		case <-time.After(20 * time.Second):
			return answers, errors.New("no answer in 20 s")
		}
	}
	return answers, nil
}

// A producer whose server hung up says "not connected" until its own routine has ended, and connects again after that.
func sendAsync(to *nsq.Producer, asked request, body []byte, ext *nsq.MsgExt, done chan *nsq.ProducerTransaction) error {
	for limit := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := to.PublishWithPartitionIdAsync(asked.Topic, asked.Partition, body, ext, done)
		if err != nsq.ErrNotConnected || time.Now().After(limit) {
			return err
		}
	}
}

func consume(asked request) ([]message, error) {
	config := nsq.NewConfig()
	config.MaxInFlight = asked.InFlight
	config.DesiredTag = asked.Tag
	reader, err := nsq.NewConsumer(asked.Topic, asked.Channel, config)
	if err != nil {
		return nil, err
	}
	reader.SetLogger(silent{}, nsq.LogLevelError)
	if !asked.Plain {
		reader.SetConsumeExt(true)
	}
	arrived := make(chan *nsq.Message, 1024)
	reader.AddHandler(nsq.HandlerFunc(func(each *nsq.Message) error {
		each.DisableAutoResponse()
		arrived <- each
		return nil
	}))
	if err = reader.ConnectToNSQD(asked.Address, -1); err != nil {
		return nil, err
	}
	seen := []message{}
	limit := time.After(time.Duration(asked.TimeoutMs) * time.Millisecond)
	for len(seen) < asked.Count {
		select {
		case each := <-arrived:
			id := hex.EncodeToString(each.ID[:])
			seen = append(seen, message{id, each.GetTraceID(), each.Body, each.Attempts, each.ExtVer, string(each.ExtBytes)})
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
			told.Answers, err = publish(asked)
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
