package robustness

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
)

// noise is one task that callers who follow no protocol do anything to, under reservations of each other's. Nothing of it
// may break the service's own promises.
type noise struct {
	task string
	mu   sync.Mutex
	ids  []string
	seen []idem.Takeover // doubts that somebody was told of
}

func (n *noise) note(id string, r *reply) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id != "" {
		n.ids = append(n.ids, id)
	}
	if r == nil {
		return
	}
	for _, t := range r.Takeovers {
		n.seen = append(n.seen, idem.Takeover{Attempt: *t.Attempt, Fence: t.Fence})
	}
}

// disturb does some random things to the task.
func (w *worker) disturb(n *noise, calls int, ager *ager) {
	for range calls {
		select {
		case <-w.stop:
			return
		default:
		}
		key := idem.Key{TaskID: n.task}
		if w.chance(5) {
			key.Attempt = int32(1 + w.random.IntN(2))
		}
		n.mu.Lock()
		id := uuid.NewString()
		if len(n.ids) > 0 {
			id = n.ids[w.random.IntN(len(n.ids))]
		}
		seen := n.seen
		n.mu.Unlock()
		if w.chance(12) {
			ager.age(w, key)
			continue
		}
		cmd, fresh := w.anything(key, id, seen)
		if r := w.do(cmd); r != nil || fresh != "" {
			n.note(fresh, r)
		}
		w.pause(0, 700*time.Millisecond)
	}
}

// anything draws a command.
func (w *worker) anything(key idem.Key, id string, seen []idem.Takeover) (cmd idem.Command, fresh string) {
	call := idem.Call{Key: key}
	switch n := w.random.IntN(20); {
	case n < 8:
		r := &idem.Reserve{
			Call: call, Owner: w.name, ReservationID: uuid.NewString(), LeaseSeconds: 1 + w.random.IntN(2),
			Explicit: w.chance(3), TaskScope: w.chance(4),
		}
		if w.chance(3) {
			r.Handler = "noise"
		}
		if w.chance(6) {
			r.ReservationID = id
		}
		if w.chance(6) {
			r.RequestHash = fmt.Sprint("hash", w.random.IntN(2))
		}
		if len(seen) > 0 && w.chance(2) {
			look := seen[w.random.IntN(len(seen))]
			if w.chance(2) {
				look.Fence = int64(1 + w.random.IntN(4)) // one that nobody had
			}
			r.Takeovers = []idem.Takeover{look}
		}
		return r, r.ReservationID
	case n < 10:
		return &idem.Dispatch{Call: call, ReservationID: id}, ""
	case n < 12:
		return &idem.Renew{Call: call, ReservationID: id, LeaseSeconds: 1 + w.random.IntN(2)}, ""
	case n < 15:
		r := &idem.Record{Call: call, ReservationID: id, Response: w.response()}
		if w.chance(3) {
			r.RetentionSeconds = idem.MinRetention + w.random.IntN(3600)
		}
		return r, ""
	case n < 17:
		return &idem.Release{Call: call, ReservationID: id, EarlierNotDone: w.chance(3)}, ""
	case n < 18:
		return &idem.Record{Call: call, Owner: w.name, Response: w.response()}, ""
	case n < 19:
		return &idem.Replay{Call: call, Owner: w.name}, ""
	}
	r := &idem.Resolve{Call: call, Fence: int64(1 + w.random.IntN(3)), Force: w.chance(2)}
	if w.chance(2) {
		r.Response = w.response()
	}
	return r, ""
}

// response draws what an upstream may have answered, in each form that one can be kept in.
func (w *worker) response() *idem.Response {
	r := &idem.Response{Status: 200 + w.random.IntN(300)}
	if w.chance(3) {
		r.Headers = []idem.Header{{"X-Try", uuid.NewString()}, {"x-try", "ü"}, {"Content-Type", "text/plain"}}
	}
	body := []byte(w.name + " " + uuid.NewString())
	switch w.random.IntN(8) {
	case 0: // none
	case 1:
		r.HasBody, r.Body = true, []byte{}
	case 2:
		r.HasBody, r.Body = true, []byte(string(body)+"\x00\xff")
	case 3:
		r.Omitted, r.BodySHA256, r.BodySize = true, fmt.Sprintf("%x", sha256.Sum256(body)), w.random.Int64N(1<<53)
	default:
		r.HasBody, r.Body = true, body
	}
	return r
}

// ager brings the ends of retentions near, which are an hour away at the least.
type ager struct {
	url  string
	down *sync.Mutex
}

func (a *ager) age(w *worker, key idem.Key) {
	a.down.Lock()
	defer a.down.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, a.url)
	if err != nil {
		return // nothing was asked
	}
	defer conn.Close(context.Background())
	soon := time.Duration(200+w.random.IntN(2500)) * time.Millisecond
	if w.chance(2) {
		soon += 10 * time.Minute // for a replica whose clock is wrong by half an hour, that is over
	}
	cmd := &age{until: time.Now().Add(soon).UTC().Truncate(time.Microsecond)}
	cmd.Key = key
	c := &call{client: w.id, cmd: cmd, begun: nanos(time.Now()), ended: forever}
	tag, err := conn.Exec(ctx, `UPDATE entries SET expires_at = $3, version = $4
		WHERE task_id = $1 AND attempt = $2 AND state <> 'absent' AND expires_at > clock_timestamp()
		  AND (state IN ('recorded', 'released') OR lease_until <= clock_timestamp())`, key.TaskID, key.Attempt, cmd.until, 1+w.random.Int64N(1<<62))
	if err == nil {
		c.ended, c.reply = nanos(time.Now()), &reply{matched: tag.RowsAffected() == 1}
	}
	w.history.add(c)
}
