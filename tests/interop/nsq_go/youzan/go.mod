module lading.test/youzan

go 1.21

require github.com/youzan/go-nsq v1.7.2-HA
