package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"syscall"

	"github.com/idemstore/idemstore/client"
)

// A worker of tasks that charge a customer: what it does with one delivery.
func ExampleClient_Once() {
	store, upstream := runService(), runUpstream() // an idemstore, and a payment service that knows no Idempotency-Key
	defer store.stop()
	defer upstream.stop()
	c, err := client.New(store.url, client.WithOwner("worker-1"), client.WithHandler("http.call"))
	if err != nil {
		fmt.Println(err)
		return
	}
	// It follows no redirect: one that leads nowhere would look as if nothing had been sent.
	direct := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

	deliver := func(task client.Key) {
		response, err := c.Once(context.Background(), task, func(ctx context.Context, _ client.Grant) (client.Response, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, upstream.url+"/charges/order-42", bytes.NewReader([]byte(`{"amount": 100}`)))
			if err != nil {
				return client.Response{}, client.NotDone(err) // nothing was sent
			}
			res, err := direct.Do(req)
			if errors.Is(err, syscall.ECONNREFUSED) {
				return client.Response{}, client.NotDone(err) // it never got there
			}
			if err != nil {
				return client.Response{}, err // it may have got there: in doubt
			}
			defer res.Body.Close()
			return client.FromHTTP(res) // whatever it said is a result, a refusal too
		})
		switch {
		case err == nil:
			fmt.Printf("complete: %d %s, replayed: %v\n", response.Status, response.Body, response.Replayed)
		case client.NothingHappened(err):
			fmt.Println("report a failure:", err)
		default:
			fmt.Println("report nothing, let the lock pass:", err)
		}
	}
	task := client.Key{TaskID: "0d9c6f1e-5b7a-4e2d-8c3f-9a1b2c3d4e5f", Attempt: 0}
	deliver(task)
	deliver(task) // again: this worker died before it could tell the engine
	// Output:
	// complete: 201 charge 1, replayed: false
	// complete: 201 charge 1, replayed: true
}

// A worker has vanished between its effect and the record. The next one asks the upstream by what both know: the order.
func ExampleWithLook() {
	store, upstream := runService(), runUpstream()
	defer store.stop()
	defer upstream.stop()
	task := client.Key{TaskID: "7f2c1f0e-1111-4e2d-8c3f-9a1b2c3d4e5f"}
	store.chargeAndVanish(task, upstream)

	look := func(ctx context.Context, doubt *client.InDoubtError) (client.Finding, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.url+"/charges/order-42", http.NoBody)
		if err != nil {
			return client.CannotTell(), err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return client.CannotTell(), err
		}
		defer res.Body.Close()
		found, err := client.FromHTTP(res)
		switch {
		case err != nil:
			return client.CannotTell(), err
		case res.StatusCode == http.StatusOK:
			return client.Happened(found), nil
		case res.StatusCode == http.StatusNotFound:
			return client.NotHappened(), nil // only where the upstream answers 404 for nothing else
		}
		return client.CannotTell(), fmt.Errorf("the upstream answered %s", res.Status)
	}
	c, err := client.New(store.url, client.WithOwner("worker-2"), client.WithLook(look))
	if err != nil {
		fmt.Println(err)
		return
	}
	response, err := c.Once(context.Background(), task, func(context.Context, client.Grant) (client.Response, error) {
		fmt.Println("charging a second time")
		return client.Response{Status: http.StatusCreated}, nil
	})
	fmt.Printf("%s, replayed: %v, error: %v\n", response.Body, response.Replayed, err)
	// Output: charge 1, replayed: true, error: <nil>
}

// A connection that was refused has done nothing: the key is released, and a failure may be reported.
func ExampleNotDone() {
	store := runService()
	defer store.stop()
	c, err := client.New(store.url)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Once(context.Background(), client.Key{TaskID: "task-1"}, func(context.Context, client.Grant) (client.Response, error) {
		return client.Response{}, client.NotDone(errors.New("connection refused"))
	})
	fmt.Println(err)
	fmt.Println("report a failure:", client.NothingHappened(err))
	// Output:
	// task-1/0 was not done: connection refused
	// report a failure: true
}

// What a fetch-and-lock brought is reserved by one call.
func ExampleClient_OnceEach() {
	store := runService()
	defer store.stop()
	c, err := client.New(store.url)
	if err != nil {
		fmt.Println(err)
		return
	}
	var tasks []client.Task
	for _, id := range []string{"task-1", "task-2", "task-1"} {
		tasks = append(tasks, client.Task{Key: client.Key{TaskID: id}, Effect: func(_ context.Context, g client.Grant) (client.Response, error) {
			return client.Response{Body: []byte("done under fence " + fmt.Sprint(g.Fence))}, nil
		}})
	}
	err = c.OnceEach(context.Background(), tasks, func(i int, response client.Response, err error) {
		var busy *client.InProgressError
		if errors.As(err, &busy) {
			fmt.Println(tasks[i].Key, "is in progress")
			return
		}
		fmt.Println(tasks[i].Key, string(response.Body), err)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// task-1/0 done under fence 1 <nil>
	// task-2/0 done under fence 1 <nil>
	// task-1/0 is in progress
}

// example is something that runs while an example does.
type example struct {
	*service
	url  string
	stop func()
}

func runService() example {
	s, stop, err := open()
	if err != nil {
		panic(err)
	}
	return example{service: s, url: s.url, stop: func() { http.DefaultClient.CloseIdleConnections(); stop() }}
}

// runUpstream charges at each POST, and knows by GET what it has charged.
func runUpstream() example {
	var mu sync.Mutex
	charges, n := make(map[string]string), 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		order := path.Base(r.URL.Path)
		if r.Method == http.MethodPost {
			n++
			charges[order] = fmt.Sprintf("charge %d", n)
			w.WriteHeader(http.StatusCreated)
		}
		if charges[order] == "" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, charges[order])
	}))
	return example{url: server.URL, stop: func() { http.DefaultClient.CloseIdleConnections(); server.Close() }}
}
