package crashtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Store is where an idemstore is, and what opens it.
type Store struct {
	URL   string
	Token string // of a worker
}

// maxBody bounds what is read of a request or an answer: a full batch.
const maxBody = 64 << 20

// storeProxy stands between the worker and the store: it sees every call, and cuts leases short.
type storeProxy struct {
	store    Store
	client   *http.Client
	maxLease time.Duration
	watch    storeWatch
}

// storeWatch is told of calls, item by item. Where it says false, the worker is dead, and the call goes no further.
type storeWatch interface {
	asked(*storeCall) bool
	told(*storeCall, storeAnswer) bool
}

// key is a key of the store, as the worker wrote it.
type key struct{ taskID, attempt string }

func (k key) String() string { return k.taskID + "/" + k.attempt }

// storeCall is one call of a worker's verb, or one item of a batch.
type storeCall struct {
	verb   string
	key    key
	madeUp bool // a record of a response that nobody gave
	late   bool // a renewal of a lease that has passed
	body   struct {
		Dispatch  string           `json:"dispatch"`
		Takeovers []jsontext.Value `json:"takeovers"`
		Response  struct {
			Status     int    `json:"status"`
			Body       string `json:"body"`
			BodyBase64 string `json:"body_base64"`
		} `json:"response"`
	}
}

// carries says whether a response that is recorded has the text in it.
func (c *storeCall) carries(text string) bool {
	return strings.Contains(c.body.Response.Body, text) || bytes.Contains(c.decoded(), []byte(text))
}

// names says whether a response that is recorded is a JSON object with such a member.
func (c *storeCall) names(member string) bool {
	var body members
	if json.Unmarshal([]byte(c.body.Response.Body), &body) != nil {
		_ = json.Unmarshal(c.decoded(), &body) // many are neither
	}
	_, ok := body[member]
	return ok
}

func (c *storeCall) decoded() []byte {
	decoded, _ := base64.StdEncoding.DecodeString(c.body.Response.BodyBase64)
	return decoded
}

// storeAnswer is what the store said to one.
type storeAnswer struct {
	status       int
	Outcome      string           `json:"outcome"`
	Late         bool             `json:"late"`
	LeaseSeconds float64          `json:"lease_seconds_left"`
	Takeovers    []jsontext.Value `json:"takeovers"`
}

func (a storeAnswer) lease() time.Duration {
	return time.Duration(a.LeaseSeconds * float64(time.Second))
}

// ServeHTTP passes a call on and its answer back.
func (p *storeProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		hangUp()
	}
	body = p.shorten(r.URL.Path, body)
	calls := callsOf(r.URL, body)
	for _, c := range calls {
		if !p.watch.asked(c) {
			hangUp()
		}
	}
	status, header, text, err := p.pass(r, body)
	if err != nil {
		answer(w, http.StatusBadGateway, map[string]string{"detail": "the crash test cannot reach the store: " + err.Error()})
		return
	}
	for i, a := range answersOf(calls, status, text) {
		if !p.watch.told(calls[i], a) {
			hangUp()
		}
	}
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	w.Write(text)
}

// pass asks the store.
func (p *storeProxy) pass(r *http.Request, body []byte) (status int, header http.Header, text []byte, err error) {
	target := strings.TrimSuffix(p.store.URL, "/") + r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header = r.Header.Clone()
	req.Header.Set("Accept-Encoding", "identity") // what is read here is read as it is
	res, err := p.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	text, err = io.ReadAll(io.LimitReader(res.Body, maxBody))
	return res.StatusCode, res.Header, text, err
}

// shorten has no lease last longer than the crash test wants to wait. What cannot be read is left for the store to refuse.
func (p *storeProxy) shorten(path string, body []byte) []byte {
	verb := path[strings.LastIndexByte(path, '/')+1:]
	if verb != "reserve" && verb != "renew" {
		return body
	}
	var all members
	if json.Unmarshal(body, &all) != nil {
		return body
	}
	items := []members{all}
	batch := path == batchPath+verb
	if batch && json.Unmarshal(all["items"], &items) != nil {
		return body
	}
	for _, item := range items {
		if !p.shortenOne(item) {
			return body
		}
	}
	if batch {
		all["items"], _ = json.Marshal(items) // as it was read
	}
	shorter, err := json.Marshal(all)
	if err != nil {
		return body
	}
	return shorter
}

type members = map[string]jsontext.Value

func (p *storeProxy) shortenOne(m members) bool {
	seconds := defaultLeaseSeconds
	given, ok := m["lease_seconds"]
	if m == nil || ok && given.Kind() != 'n' && json.Unmarshal(given, &seconds) != nil {
		return false
	}
	if most := int(p.maxLease / time.Second); seconds > most {
		m["lease_seconds"] = jsontext.Value(strconv.Itoa(most))
	}
	return true
}

const (
	batchPath           = "/v1/batch/"
	defaultLeaseSeconds = 60
)

// callsOf reads what a request asks for. It is none of a worker's verbs: nothing.
func callsOf(u *url.URL, body []byte) []*storeCall {
	if verb, ok := strings.CutPrefix(u.Path, batchPath); ok {
		var batch struct {
			Items []jsontext.Value `json:"items"`
		}
		_ = json.Unmarshal(body, &batch) // the store refuses it
		calls := make([]*storeCall, len(batch.Items))
		for i, item := range batch.Items {
			var one struct {
				TaskID  string         `json:"task_id"`
				Attempt jsontext.Value `json:"attempt"`
			}
			_ = json.Unmarshal(item, &one)
			calls[i] = &storeCall{verb: verb, key: key{one.TaskID, string(one.Attempt)}}
			_ = json.Unmarshal(item, &calls[i].body)
		}
		return calls
	}
	// v1/tasks/{task_id}/attempts/{attempt}/{verb}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) != 6 || parts[1] != "tasks" {
		return nil
	}
	c := &storeCall{verb: parts[5], key: key{parts[2], parts[4]}}
	_ = json.Unmarshal(body, &c.body)
	return []*storeCall{c}
}

// answersOf reads what each call was answered.
func answersOf(calls []*storeCall, status int, text []byte) []storeAnswer {
	if len(calls) == 0 {
		return nil
	}
	var batch struct {
		Results []struct {
			Status int         `json:"status"`
			Body   storeAnswer `json:"body"`
		} `json:"results"`
	}
	if json.Unmarshal(text, &batch) == nil && len(batch.Results) == len(calls) {
		answers := make([]storeAnswer, len(calls))
		for i, r := range batch.Results {
			answers[i] = r.Body
			answers[i].status = r.Status
		}
		return answers
	}
	answers := make([]storeAnswer, len(calls))
	for i := range answers {
		_ = json.Unmarshal(text, &answers[i])
		answers[i].status = status
	}
	return answers
}

// keyState is what the store says of a key.
type keyState string

const (
	stateFree     keyState = "not_found" // nothing stands in the way of the next reserve
	stateRecorded keyState = "recorded"
	stateHeld     keyState = "in_progress"
	stateInDoubt  keyState = "in_doubt"
)

// unreachable names the store by its URL, and not by that of a call.
func (s Store) unreachable(err error) error {
	var where *url.Error
	if errors.As(err, &where) {
		err = where.Err
	}
	return fmt.Errorf("the store at %s cannot be reached: %w", s.URL, err)
}

// look asks the store about a key, as a worker may. The answer may be about another attempt of the task, which is then
// returned in its place.
func (s Store) look(ctx context.Context, client *http.Client, k key) (key, keyState, error) {
	target := fmt.Sprintf("%s/v1/tasks/%s/attempts/%s/replay?owner=idemstore-crashtest",
		strings.TrimSuffix(s.URL, "/"), url.PathEscape(k.taskID), url.PathEscape(k.attempt))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return k, "", s.unreachable(err)
	}
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	res, err := client.Do(req)
	if err != nil {
		return k, "", s.unreachable(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return k, "", fmt.Errorf("the store broke off: %w", err)
	}
	var said struct {
		Outcome keyState       `json:"outcome"`
		Attempt jsontext.Value `json:"attempt"`
	}
	_ = json.Unmarshal(text, &said) // what is no JSON has no outcome
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		return k, "", fmt.Errorf("the store at %s does not know the token; give one of role worker by IDEMSTORE_TOKEN or --token", s.URL)
	case res.StatusCode == http.StatusForbidden:
		return k, "", fmt.Errorf("the store at %s does not let this token do a worker's work; give one of role worker", s.URL)
	case said.Outcome == stateFree || said.Outcome == stateRecorded:
		return k, said.Outcome, nil
	case said.Outcome == stateHeld || said.Outcome == stateInDoubt:
		return key{k.taskID, string(said.Attempt)}, said.Outcome, nil
	default:
		return k, "", fmt.Errorf("what answers at %s is no idemstore that can serve: %s to a replay", s.URL, res.Status)
	}
}
