package robustness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// patience is how long a caller waits for an answer.
const patience = 4 * time.Second

func contextWithTimeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// client speaks to any replica and writes down what it sees.
type client struct {
	id      int
	history *history
	http    *http.Client
	urls    []string
	pick    func(n int) int
	strange func(error) // told of an answer that no caller should ever see
}

// do carries a command out and returns the answer, nil where there was none.
func (c *client) do(cmd idem.Command) *reply {
	if resolve, ok := cmd.(*idem.Resolve); ok {
		resolve.Token = "anonymous" // whom the service takes a caller without a token for; an operator's word bears the token's name
	}
	method, path, body := request(cmd)
	return c.send([]idem.Command{cmd}, method, path, body, func(status int, text []byte) ([]*reply, error) {
		r, err := readReply(status, text)
		return []*reply{r}, err
	})[0]
}

// batch carries reserves or records out in one call.
func (c *client) batch(cmds []idem.Command) []*reply {
	var items []any
	for _, cmd := range cmds {
		_, _, body := request(cmd)
		item := body.(map[string]any)
		delete(item, "wait_seconds") // an item does not wait
		item["task_id"], item["attempt"] = cmd.Target().TaskID, cmd.Target().Attempt
		items = append(items, item)
	}
	return c.send(cmds, http.MethodPost, "/v1/batch/"+verb(cmds[0]), map[string]any{"items": items}, func(_ int, text []byte) ([]*reply, error) {
		var answer struct {
			Results []struct {
				Status int
				Body   json.RawMessage
			}
		}
		if err := json.Unmarshal(text, &answer); err != nil || len(answer.Results) != len(cmds) {
			return nil, fmt.Errorf("an answer to a batch of %d: %w: %.200s", len(cmds), err, text)
		}
		var replies []*reply
		for _, result := range answer.Results {
			r, err := readReply(result.Status, result.Body)
			if err != nil {
				return nil, err
			}
			replies = append(replies, r)
		}
		return replies, nil
	})
}

// send makes one call, and a line of the history for each command in it.
func (c *client) send(cmds []idem.Command, method, path string, body any, read func(int, []byte) ([]*reply, error)) []*reply {
	replies := make([]*reply, len(cmds))
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			panic(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.urls[c.pick(len(c.urls))]+path, bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	begun := nanos(time.Now())
	status, answer, err := c.exchange(req)
	ended := nanos(time.Now())
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "dial" {
		return replies // it never left
	}
	if err == nil && status != http.StatusOK && status >= 300 && strings.HasPrefix(path, "/v1/batch/") {
		if status < 500 && status != 429 {
			c.strange(fmt.Errorf("%s %s: %d %s", method, path, status, answer))
		}
	} else if err == nil {
		if got, err := read(status, answer); err != nil {
			c.strange(fmt.Errorf("%s %s: %w", method, path, err))
		} else {
			replies = got
		}
	}
	for i, cmd := range cmds {
		call := &call{client: c.id, cmd: cmd, begun: begun, ended: forever}
		if r := replies[i]; r != nil && r.certain() {
			call.reply, call.ended = r, ended
			if r.Status == 400 || r.Status == 404 && r.Outcome != "not_found" || r.Status > 409 && r.Status != 422 {
				c.strange(fmt.Errorf("%s %s: %d %s", method, path, r.Status, r.Detail))
			}
		} else {
			replies[i] = nil
		}
		c.history.add(call)
	}
	return replies
}

func (c *client) exchange(req *http.Request) (int, []byte, error) {
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, text, err
}

// request says a command in the words of the API.
func request(cmd idem.Command) (method, path string, body any) {
	key := cmd.Target()
	in := map[string]any{}
	set := func(member string, value any, there bool) {
		if there {
			in[member] = value
		}
	}
	offered := func(r *idem.Response) any {
		headers := r.Headers
		if headers == nil {
			headers = []idem.Header{}
		}
		out := map[string]any{"status": r.Status, "headers": headers}
		switch {
		case r.Omitted:
			out["body_omitted"], out["body_sha256"], out["body_size"] = true, r.BodySHA256, r.BodySize
		case r.HasBody:
			out["body_base64"] = r.Body
		}
		return out
	}
	switch cmd := cmd.(type) {
	case *idem.Reserve:
		in["owner"], in["reservation_id"], in["lease_seconds"] = cmd.Owner, cmd.ReservationID, cmd.LeaseSeconds
		set("dispatch", "explicit", cmd.Explicit)
		set("scope", "task", cmd.TaskScope)
		set("request_hash", cmd.RequestHash, cmd.RequestHash != "")
		var takeovers []map[string]any
		for _, t := range cmd.Takeovers {
			takeovers = append(takeovers, map[string]any{"attempt": t.Attempt, "fence": t.Fence})
		}
		set("takeovers", takeovers, takeovers != nil)
		set("handler", cmd.Handler, cmd.Handler != "")
		// Some wait a little for a key that another holds. To a caller that waits, a look that it brings along is good at once only.
		set("wait_seconds", 1, takeovers == nil && cmd.ReservationID[0] < '4')
	case *idem.Dispatch:
		in["reservation_id"] = cmd.ReservationID
	case *idem.Renew:
		in["reservation_id"], in["lease_seconds"] = cmd.ReservationID, cmd.LeaseSeconds
	case *idem.Record:
		set("reservation_id", cmd.ReservationID, cmd.ReservationID != "")
		set("owner", cmd.Owner, cmd.Owner != "")
		set("retention_seconds", cmd.RetentionSeconds, cmd.RetentionSeconds != 0)
		in["response"] = offered(cmd.Response)
	case *idem.Release:
		in["reservation_id"], in["reason"] = cmd.ReservationID, "it did not happen"
		set("earlier_not_done", true, cmd.EarlierNotDone)
	case *idem.Resolve:
		in["action"], in["fence"], in["reason"] = "release", cmd.Fence, "the operator looked"
		set("force", true, cmd.Force)
		if cmd.Response != nil {
			in["action"], in["response"] = "record", offered(cmd.Response)
		}
	case *idem.Replay:
		return http.MethodGet, fmt.Sprintf("/v1/tasks/%s/attempts/%d/replay?owner=%s", key.TaskID, key.Attempt, cmd.Owner), nil
	default:
		panic(fmt.Sprintf("no request for %T", cmd))
	}
	return http.MethodPost, fmt.Sprintf("/v1/tasks/%s/attempts/%d/%s", key.TaskID, key.Attempt, verb(cmd)), in
}
