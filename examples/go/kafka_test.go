package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idemstore/idemstore/client"
)

// topic is a topic of one partition.
type topic struct {
	*kafka
	t *testing.T
}

func newTopic(t *testing.T) *topic {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	k, err := newKafka(nil, cluster.ListenAddrs())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	return &topic{k, t}
}

func (o *topic) put(key string, at time.Time) {
	o.t.Helper()
	record := &kgo.Record{Topic: "orders", Key: []byte(key), Value: []byte("42"), Timestamp: at}
	if err := o.producer.ProduceSync(o.t.Context(), record).FirstErr(); err != nil {
		o.t.Fatal(err)
	}
}

// cut deletes what is before an offset, as retention does.
func (o *topic) cut(to int64) {
	o.t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "orders", At: to})
	answers, err := kadm.NewClient(o.producer).DeleteRecords(o.t.Context(), offsets)
	if err != nil || answers.Error() != nil {
		o.t.Fatal(err, answers.Error())
	}
}

// want looks for the record of the task "mine", whose doubt is of a time.
func (o *topic) want(want client.Finding, reserved time.Time) {
	o.t.Helper()
	doubt := &client.InDoubtError{Doubts: []client.Doubt{{ReservedAt: reserved.UTC().Format("2006-01-02T15:04:05.000000Z")}}}
	found, err := o.look(o.t.Context(), taskOf("mine", map[string]string{"topic": "orders"}), doubt)
	if !reflect.DeepEqual(found, want) {
		o.t.Errorf("it has found %+v, want %+v; %v", found, want, err)
	}
}

func TestKafkaLook(t *testing.T) {
	t.Parallel()
	o, now := newTopic(t), time.Now()
	o.want(client.NotHappened(), now) // an empty topic
	o.put("long before", now.Add(-time.Hour))
	o.put("before", now.Add(-time.Hour))
	o.want(client.NotHappened(), now)
	o.cut(1)
	o.want(client.NotHappened(), now) // what was cut is from before the doubt
	o.put("conduit-task-mine", now)
	o.put("after", now)
	there, err := written(&kgo.Record{Topic: "orders", Offset: 2})
	if err != nil {
		t.Fatal(err)
	}
	o.want(client.Happened(there), now)
	o.cut(3)
	o.want(client.CannotTell(), now) // it was there
	o.want(client.CannotTell(), now.Add(30*time.Second))
	o.want(client.NotHappened(), now.Add(time.Hour))
	o.cut(4)
	o.want(client.CannotTell(), now.Add(time.Hour)) // nothing is left
}

// A partition may end in the mark of a transaction, which is no record.
func TestKafkaLookBehindATransaction(t *testing.T) {
	t.Parallel()
	o := newTopic(t)
	other, err := kgo.NewClient(kgo.SeedBrokers(o.brokers...), kgo.TransactionalID("other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := other.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("in it")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := other.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	o.want(client.NotHappened(), time.Now())
}

// While a handler works, whichever it is, the engine's lock is held.
func TestLockIsHeld(t *testing.T) {
	t.Parallel()
	extended := make(chan string, 100)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if path.Base(r.URL.Path) == "extend-lock" {
			extended <- path.Base(path.Dir(r.URL.Path))
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(engine.Close)
	w := &worker{engine: engine.URL, id: "me", beat: time.Millisecond}
	handle := w.each(func(context.Context, *task) (client.Response, error) {
		for range 2 {
			select {
			case id := <-extended:
				if id != "mine" {
					t.Errorf("the lock of %s is extended", id)
				}
			case <-time.After(20 * time.Second):
				t.Error("the lock is not extended")
			}
		}
		return client.Response{Status: 200}, nil
	})
	handle(t.Context(), []task{*taskOf("mine", nil)})
}
