package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/idemstore/idemstore/client"
)

const lock = 30 // seconds

// task is one delivery of a task.
type task struct {
	ID         string `json:"id"`
	Topic      string `json:"topic"`
	RetryCount int32  `json:"retry_count"`
	Variables  []struct {
		Name  string          `json:"name"`
		Value json.RawMessage `json:"value"`
	} `json:"variables"`
}

// key is what does not change when the task is delivered again: the retry count moves on by a reported failure alone.
func (t *task) key() client.Key { return client.Key{TaskID: t.ID, Attempt: t.RetryCount} }

// value is a variable in JSON: null if there is none of that name.
func (t *task) value(name string) json.RawMessage {
	for _, v := range t.Variables {
		if v.Name == name {
			return v.Value
		}
	}
	return json.RawMessage("null")
}

// text is a variable as it is sent: a string as it is, nothing for null, anything else as JSON.
func (t *task) text(name string) string {
	var s string
	if value := t.value(name); json.Unmarshal(value, &s) != nil {
		var compact bytes.Buffer
		_ = json.Compact(&compact, value) // it was valid when it came
		s = compact.String()
	}
	return s
}

// report tells the engine what is known, and nothing else. It goes on when the worker is told to stop.
func (w *worker) report(ctx context.Context, t *task, response client.Response, err error) {
	ctx = context.WithoutCancel(ctx)
	variables := []map[string]any{
		{"name": "status", "value_type": "Long", "value": response.Status},
		{"name": "body", "value_type": "String", "value": string(response.Body)},
	}
	switch {
	case client.NothingHappened(err):
		err = w.call(ctx, t.ID+"/failure", map[string]any{"error_message": err.Error()}, nil)
	case err == nil && response.Status >= 400: // a result, if not the one that was hoped for
		code := fmt.Sprintf("HTTP_%d", response.Status)
		err = w.call(ctx, t.ID+"/bpmn-error", map[string]any{"error_code": code, "error_message": "declined", "variables": variables}, nil)
	case err == nil:
		err = w.call(ctx, t.ID+"/complete", map[string]any{"variables": variables}, nil)
	}
	if err != nil {
		log.Printf("%s: %v", t.Topic, err)
	}
}

// again is a handler whose work can be tried again without harm: a failure is reported whatever went wrong.
func again(h handler) handler {
	return func(ctx context.Context, t *task) (client.Response, error) {
		response, err := h(ctx, t)
		return response, client.NotDone(err)
	}
}

// held is a handler that holds the engine's lock while it works, as the client holds the lease.
func (w *worker) held(h handler) handler {
	return func(ctx context.Context, t *task) (client.Response, error) {
		ctx, end := context.WithCancel(ctx)
		defer end()
		go w.extend(ctx, t)
		return h(ctx, t)
	}
}

func (w *worker) extend(ctx context.Context, t *task) {
	for tick := time.Tick(w.beat); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		if err := w.call(ctx, t.ID+"/extend-lock", map[string]any{"lock_duration_secs": lock}, nil); err != nil && ctx.Err() == nil {
			log.Print(err)
		}
	}
}

func (w *worker) call(ctx context.Context, path string, body map[string]any, into any) error {
	body["worker_id"] = w.id
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	answer, err := send(ctx, http.MethodPost, w.engine+"/"+path, nil, text)
	switch {
	case err != nil:
		return err
	case answer.Status >= 300:
		return fmt.Errorf("the engine answered %d to %s: %s", answer.Status, path, answer.Body)
	case into == nil:
		return nil
	}
	return json.Unmarshal(answer.Body, into)
}
