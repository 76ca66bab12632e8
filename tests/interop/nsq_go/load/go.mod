module lading.test/load

go 1.21

require github.com/nsqio/go-nsq v1.1.0
