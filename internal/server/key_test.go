package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// key is a key of the test's own.
type key struct {
	t       testing.TB
	s       *service
	task    string
	attempt int
}

func (s *service) key(t testing.TB) key { return key{t: t, s: s, task: uuid.NewString()} }

// at is another attempt of the same task.
func (k key) at(attempt int) key {
	k.attempt = attempt
	return k
}

func (k key) path(verb string) string {
	return fmt.Sprintf("/v1/tasks/%s/attempts/%d/%s", k.task, k.attempt, verb)
}

func (k key) post(verb string, body any) answer {
	k.t.Helper()
	return k.s.send(k.t, call{method: http.MethodPost, path: k.path(verb), body: body})
}

// with is one object of several; a later one wins.
func with(all ...obj) obj {
	out := obj{}
	for _, o := range all {
		maps.Copy(out, o)
	}
	return out
}

// reserve reserves as the owner w under a fresh reservation, unless more says otherwise.
func (k key) reserve(more ...obj) answer {
	k.t.Helper()
	return k.post("reserve", with(append([]obj{{"owner": "w", "reservation_id": uuid.NewString()}}, more...)...))
}

func (k key) dispatch(id string) answer {
	k.t.Helper()
	return k.post("dispatch", obj{"reservation_id": id})
}

func (k key) renew(id string, more ...obj) answer {
	k.t.Helper()
	return k.post("renew", with(append([]obj{{"reservation_id": id}}, more...)...))
}

// record records a response under a reservation; without one, more names an owner.
func (k key) record(id string, response obj, more ...obj) answer {
	k.t.Helper()
	body := with(append([]obj{{"response": response}}, more...)...)
	if id != "" {
		body["reservation_id"] = id
	}
	return k.post("record", body)
}

func (k key) release(id string, more ...obj) answer {
	k.t.Helper()
	return k.post("release", with(append([]obj{{"reservation_id": id}}, more...)...))
}

// entry is what is kept of the key.
func (k key) entry() answer {
	k.t.Helper()
	return k.s.get(k.t, strings.TrimSuffix(k.path(""), "/")).ok()
}

// history is the task of the key.
func (k key) history() answer {
	k.t.Helper()
	return k.s.get(k.t, "/v1/tasks/"+k.task)
}

// resolve settles the key by an operator's word, at a fence.
func (k key) resolve(fence any, more ...obj) answer {
	k.t.Helper()
	return k.post("resolve", with(append([]obj{{"action": "release", "fence": fence, "reason": "looked into"}}, more...)...))
}

func (k key) replay(query string) answer {
	k.t.Helper()
	return k.s.send(k.t, call{method: http.MethodGet, path: k.path("replay") + query})
}
