package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idemstore/idemstore/client"
)

// kafka produces records. An idempotent producer writes each record once as long as it lives; the store sees to it across
// its restarts; and the key, made of the task's id, lets consumers and the look know a record again.
type kafka struct {
	store    *client.Client
	brokers  []string
	producer *kgo.Client
}

func newKafka(store *client.Client, brokers []string) (*kafka, error) {
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers...)) // idempotent, and acknowledged by all replicas in sync, by default
	if err != nil {
		return nil, err
	}
	return &kafka{store: store, brokers: brokers, producer: producer}, nil
}

func (k *kafka) close() { k.producer.Close() }

func keyOf(t *task) []byte { return []byte("conduit-task-" + t.ID) }

func (k *kafka) produce(ctx context.Context, t *task) (client.Response, error) {
	return k.store.Once(ctx, t.key(), func(ctx context.Context, _ client.Grant) (client.Response, error) {
		record, err := k.producer.ProduceSync(ctx, &kgo.Record{Topic: t.text("topic"), Key: keyOf(t), Value: []byte(t.text("value"))}).First()
		if err != nil {
			return client.Response{}, err // it may have been written
		}
		return written(record)
	}, client.WithHandler(t.Topic), client.WithTaskScope(),
		client.WithLook(func(ctx context.Context, _ *client.InDoubtError) (client.Finding, error) { return k.look(ctx, t) }))
}

func written(r *kgo.Record) (client.Response, error) {
	body, err := json.Marshal(map[string]any{"topic": r.Topic, "partition": r.Partition, "offset": r.Offset})
	return client.Response{Status: 200, Body: body}, err
}

// look reads the topic up to its present end for the task's record. A topic of millions would be read from a time on, or by
// a table that consumers keep.
func (k *kafka) look(ctx context.Context, t *task) (client.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ends, err := kadm.NewClient(k.producer).ListEndOffsets(ctx, t.text("topic"))
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return client.CannotTell(), err
	}
	left, from := make(map[int32]int64), make(map[int32]kgo.Offset)
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			left[end.Partition], from[end.Partition] = end.Offset, kgo.NewOffset().AtStart()
		}
	})
	reader, err := kgo.NewClient(kgo.SeedBrokers(k.brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.text("topic"): from}))
	if err != nil {
		return client.CannotTell(), err
	}
	defer reader.Close()
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return client.CannotTell(), err
		}
		for _, r := range fetches.Records() {
			if string(r.Key) == string(keyOf(t)) {
				response, err := written(r)
				return client.Happened(response), err
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		}
	}
	return client.NotHappened(), nil
}
