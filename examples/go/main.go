// A worker of external tasks that survives being killed at any moment. Its handlers show which work needs the store and
// which does not.
package main

import (
	"bytes"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/client"
)

// handler does one task. Its response completes the task; where nothing happened ([client.NotDone]) a failure is reported; at any other
// error nothing is, so that the engine's lock passes and the task comes again.
type handler func(ctx context.Context, t *task) (client.Response, error)

type worker struct {
	engine string // base URL of its external tasks
	id     string
	store  *client.Client
	beat   time.Duration // how often a lock is extended
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	w := &worker{
		engine: strings.TrimSuffix(os.Getenv("CONDUIT_URL"), "/") + "/api/v1/external-tasks",
		id:     "go-" + uuid.NewString(), // of this process alone: two workers of one name would fight over locks
		beat:   lock * time.Second / 3,
	}
	var err error
	w.store, err = client.New(os.Getenv("IDEMSTORE_URL"), client.WithToken(os.Getenv("IDEMSTORE_TOKEN")), client.WithOwner(w.id))
	if err != nil {
		return err
	}
	topics := map[string]func(context.Context, []task){
		"http.call":       w.httpCalls,
		"http.call.keyed": w.each(again(httpCallKeyed)),
		"http.get":        w.each(again(httpGet)),
		"csv.read":        w.each(again(csvRead)),
		"csv.write":       w.each(again(csvWrite)),
	}
	if url := os.Getenv("STORAGE_URL"); url != "" { // https://storage.googleapis.com, or an emulator
		g := gcs{url: strings.TrimSuffix(url, "/")}
		topics["gcs.read"], topics["gcs.write"] = w.each(again(g.read)), w.each(again(g.write))
	}
	if brokers := os.Getenv("KAFKA_BROKERS"); brokers != "" {
		k, err := newKafka(w.store, strings.Split(brokers, ","))
		if err != nil {
			return err
		}
		defer k.close()
		topics["kafka.produce"] = w.each(k.produce)
	}
	var all sync.WaitGroup
	for topic, handle := range topics {
		all.Go(func() { w.work(ctx, topic, handle) })
	}
	all.Wait()
	return nil
}

// work fetches the tasks of a topic until the context ends.
func (w *worker) work(ctx context.Context, topic string, handle func(context.Context, []task)) {
	for ctx.Err() == nil {
		var tasks []task
		err := w.call(ctx, "fetch-and-lock", map[string]any{"topic": topic, "max_jobs": 10, "lock_duration_secs": lock}, &tasks)
		if err == nil {
			handle(ctx, tasks)
			continue
		}
		log.Print(err)
		select {
		case <-time.After(time.Second / 2):
		case <-ctx.Done():
		}
	}
}

func (w *worker) each(h handler) func(context.Context, []task) {
	return func(ctx context.Context, tasks []task) {
		for i := range tasks {
			response, err := w.held(h)(ctx, &tasks[i])
			w.report(ctx, &tasks[i], response, err)
		}
	}
}

// direct follows no redirect: one that leads nowhere would look as if nothing had been sent.
var direct = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// send is one request. Its error is marked by [client.NotDone] where nothing was sent.
func send(ctx context.Context, method, url string, header http.Header, body []byte) (client.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return client.Response{}, client.NotDone(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for name := range header {
		req.Header.Set(name, header.Get(name))
	}
	res, err := direct.Do(req)
	if unknown := new(net.DNSError); errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &unknown) {
		return client.Response{}, client.NotDone(err) // there never was a connection
	}
	if err != nil {
		return client.Response{}, err
	}
	defer res.Body.Close()
	return client.FromHTTP(res)
}
