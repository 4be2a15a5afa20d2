package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
		client.WithLook(func(ctx context.Context, doubt *client.InDoubtError) (client.Finding, error) {
			return k.look(ctx, t, doubt)
		}))
}

func written(r *kgo.Record) (client.Response, error) {
	body, err := json.Marshal(map[string]any{"topic": r.Topic, "partition": r.Partition, "offset": r.Offset})
	return client.Response{Status: 200, Body: body}, err
}

// look reads the topic up to its present end for the task's record. A topic of millions would be read from a time on, or by
// a table that consumers keep.
func (k *kafka) look(ctx context.Context, t *task, doubt *client.InDoubtError) (client.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	topic, admin := t.text("topic"), kadm.NewClient(k.producer)
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err = errors.Join(err, starts.Error()); err != nil {
		return client.CannotTell(), err
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return client.CannotTell(), err
	}
	left, from := make(map[int32]int64), make(map[int32]kgo.Offset)
	for partition, end := range ends[topic] {
		if end.Offset > starts[topic][partition].Offset {
			left[partition], from[partition] = end.Offset, kgo.NewOffset().AtStart()
		}
	}
	// The marks of transactions are read too: one may be the last of a partition.
	reader, err := kgo.NewClient(kgo.SeedBrokers(k.brokers...), kgo.KeepControlRecords(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return client.CannotTell(), err
	}
	defer reader.Close()
	first := make(map[int32]*kgo.Record) // that a partition still has
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
			if first[r.Partition] == nil {
				first[r.Partition] = r
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		}
	}
	for partition, end := range ends[topic] {
		if end.Offset > 0 && !reachesBack(first[partition], doubt) {
			return client.CannotTell(), fmt.Errorf("partition %d of %s no longer has all that was written since", partition, topic)
		}
	}
	return client.NotHappened(), nil
}

// reachesBack tells whether a partition that begins with this record still has all that was written since the doubt, by clocks
// that differ by less than a minute. The doubts of one attempt are told; before those of a later one there may be others.
func reachesBack(first *kgo.Record, doubt *client.InDoubtError) bool {
	if first == nil || len(doubt.Doubts) == 0 {
		return false
	}
	reserved, err := time.Parse(time.RFC3339, doubt.Doubts[0].ReservedAt)
	return first.Offset == 0 || err == nil && doubt.Attempt == 0 && first.Timestamp.Before(reserved.Add(-time.Minute))
}
