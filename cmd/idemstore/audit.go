package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/audit"
)

type auditCmd struct {
	Task         auditTaskCmd         `cmd:"" help:"Tell what happened to a task: all attempts, one timeline, every response."`
	Entry        auditEntryCmd        `cmd:"" help:"Show one entry."`
	Entries      auditEntriesCmd      `cmd:"" help:"List entries, such as those in doubt."`
	Events       auditEventsCmd       `cmd:"" help:"List or export the trail."`
	Stats        auditStatsCmd        `cmd:"" help:"Count what happened, and what is open now."`
	Resolve      auditResolveCmd      `cmd:"" help:"Settle a key in doubt: record its response, or say that nothing happened."`
	ReleaseOwner auditReleaseOwnerCmd `cmd:"" help:"Release what an owner that is gone still holds."`
	Watch        auditWatchCmd        `cmd:"" help:"Show events as they happen."`
}

// Help implements kong.HelpProvider.
func (auditCmd) Help() string {
	return `It asks the service at IDEMSTORE_URL with the token in IDEMSTORE_TOKEN. Reading needs the role auditor or operator, resolve and release-owner the role operator.

Exit status:

    0  answered
    1  failed: no answer, a fault of the service, or a token that may not do it
    2  the command line cannot be, or the service refuses it as such
    3  nothing matches: an unknown task, an empty list
    4  refused by the state of the key`
}

// asking is the flags of what asks a running service as somebody.
type asking struct {
	client
	Token   secret        `env:"IDEMSTORE_TOKEN" placeholder:"TOKEN" help:"Token to show to the service. Others on this machine can see a flag; the variable they cannot (${env})."`
	Timeout time.Duration `default:"60s" help:"How long the service may say nothing."`
}

// secret is a text that is not to be seen, wherever it might be printed.
type secret string

func (secret) String() string   { return "(secret)" }
func (secret) GoString() string { return "(secret)" }

// session is a command's world.
func (c *asking) session(e *env, output string) (*audit.Session, error) {
	service, err := audit.Dial(c.URL, string(c.Token), c.Timeout)
	if err != nil {
		return nil, err
	}
	s := &audit.Session{Service: service, In: e.stdin, Out: e.stdout, Err: e.stderr, Output: output, Now: time.Now}
	s.InTerminal, s.OutTerminal, s.ErrTerminal = atTerminal(e.stdin), atTerminal(e.stdout), atTerminal(e.stderr)
	return s, nil
}

// atTerminal says whether a person is at the other end.
func atTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && terminal(f)
}

// form is how one thing is shown, forms how a list is.
type (
	form struct {
		Output string `short:"o" enum:"table,json" default:"table" help:"table for people, json as the service writes it."`
	}
	forms struct {
		Output string `short:"o" enum:"table,json,csv" default:"table" help:"table for people; for scripts json, one object a line as the service writes it, or csv."`
	}
)

// window is how much of a list is wanted.
type window struct {
	Limit *int `xor:"window" placeholder:"N" help:"List at most so many; 100 unless you say."`
	All   bool `xor:"window" help:"List all."`
}

const defaultLimit = 100

// Validate implements kong.Validatable.
func (w window) Validate() error {
	if w.Limit != nil && *w.Limit < 1 {
		return errors.New("--limit: want 1 or more, or --all")
	}
	return nil
}

func (w window) want() audit.Window {
	if w.Limit != nil {
		return audit.Window{Limit: *w.Limit}
	}
	return audit.Window{Limit: defaultLimit, All: w.All}
}

// key is which entry is meant.
type key struct {
	Task    string `arg:"" name:"id" help:"The task's id."`
	Attempt int32  `arg:"" help:"The attempt, from 0."`
}

type auditTaskCmd struct {
	asking
	form
	Task   string `arg:"" name:"id" help:"The task's id."`
	Bodies bool   `help:"Show bodies whole."`
}

// Help implements kong.HelpProvider.
func (auditTaskCmd) Help() string {
	return `Examples:

    idemstore audit task 3f0c2f0e-6a0b-4a52-9d0e-5a2e9d4a7f10
    idemstore audit task order-7 --bodies | less
    idemstore audit task order-7 --output json | jq '.events[] | select(.kind == "duplicate_record")'`
}

// Run implements the subcommand.
func (c *auditTaskCmd) Run(e *env) error {
	s, err := c.session(e, c.Output)
	if err != nil {
		return err
	}
	s.Bodies = c.Bodies
	return s.Task(e.ctx, c.Task)
}

type auditEntryCmd struct {
	asking
	form
	key
	Bodies bool `help:"Show the body whole."`
}

// Help implements kong.HelpProvider.
func (auditEntryCmd) Help() string {
	return `Examples:

    idemstore audit entry order-7 0
    idemstore audit entry order-7 0 --output json | jq -r .response.body`
}

// Run implements the subcommand.
func (c *auditEntryCmd) Run(e *env) error {
	s, err := c.session(e, c.Output)
	if err != nil {
		return err
	}
	s.Bodies = c.Bodies
	return s.Entry(e.ctx, c.Task, c.Attempt)
}

type auditEntriesCmd struct {
	asking
	forms
	window
	InDoubt        bool   `help:"Only those in doubt."`
	State          string `enum:",reserved,dispatched,recorded,released" default:"" help:"Only those in this state: reserved, dispatched, recorded or released."`
	Handler        string `help:"Only those of this handler."`
	Owner          string `help:"Only those whose grant, the last one, is this owner's."`
	Since          *since `xor:"after" placeholder:"AGE" help:"Only those reserved so long ago or later, such as 30m, 24h or 7d."`
	ReservedAfter  *when  `xor:"after" placeholder:"TIME" help:"Only those reserved at this time or later, such as 2026-11-29T20:00:00Z or 2026-11-29, in UTC."`
	ReservedBefore *when  `placeholder:"TIME" help:"Only those reserved before it."`
	RecordedAfter  *when  `placeholder:"TIME" help:"Only those recorded at this time or later."`
	RecordedBefore *when  `placeholder:"TIME" help:"Only those recorded before it."`
}

// Help implements kong.HelpProvider.
func (auditEntriesCmd) Help() string {
	return `The newest reservation comes first. Responses are not listed; entry and task show them.

Examples:

    idemstore audit entries --in-doubt
    idemstore audit entries --owner worker-7 --state dispatched
    idemstore audit entries --since 24h --all --output csv > entries.csv`
}

// Run implements the subcommand.
func (c *auditEntriesCmd) Run(e *env) error {
	s, err := c.session(e, c.Output)
	if err != nil {
		return err
	}
	q := api.ListEntriesParams{
		State: (*api.AttemptState)(given(c.State)), Handler: given(c.Handler), Owner: given(c.Owner),
		ReservedAfter: c.ReservedAfter.stamp(), ReservedBefore: c.ReservedBefore.stamp(),
		RecordedAfter: c.RecordedAfter.stamp(), RecordedBefore: c.RecordedBefore.stamp(),
	}
	if c.Since != nil {
		if q.ReservedAfter, err = c.Since.stamp(e.ctx, s); err != nil {
			return err
		}
	}
	if c.InDoubt {
		q.InDoubt = &c.InDoubt
	}
	return s.Entries(e.ctx, q, c.want())
}

// which says which events are meant.
type which struct {
	Kind    string `enum:",replayed,taken_over,found_in_doubt,refused_mismatch,released,recorded_late,duplicate_record,refused_record,resolved,purged" default:"" help:"Only this kind: replayed, taken_over, found_in_doubt, refused_mismatch, released, recorded_late, duplicate_record, refused_record, resolved or purged."`
	Task    string `help:"Only those of this task."`
	Handler string `help:"Only those of this handler."`
	Actor   string `help:"Only those of this actor, by the owner's name or the token's."`
}

func (w *which) params() api.ListEventsParams {
	return api.ListEventsParams{Kind: (*api.EventKind)(given(w.Kind)), TaskID: given(w.Task), Handler: given(w.Handler), Actor: given(w.Actor)}
}

// period is from when to when.
type period struct {
	Since  *since `xor:"after" placeholder:"AGE" help:"From so long ago on, such as 30m, 24h or 7d."`
	After  *when  `xor:"after" placeholder:"TIME" help:"From this time on, such as 2026-11-29T20:00:00Z or 2026-11-29, in UTC."`
	Before *when  `placeholder:"TIME" help:"Before this time."`
}

func (p *period) after(ctx context.Context, s *audit.Session) (*string, error) {
	if p.Since != nil {
		return p.Since.stamp(ctx, s)
	}
	return p.After.stamp(), nil
}

type auditEventsCmd struct {
	asking
	forms
	window
	which
	period
	File string `type:"path" placeholder:"FILE" help:"With json or csv: write into this file, which appears whole or not at all."`
}

// Help implements kong.HelpProvider.
func (auditEventsCmd) Help() string {
	return `The newest comes first. json and csv are the service's own stream, bodies of responses included; like the table they end after 100 unless --limit or --all says otherwise. An export that broke off ends with exit status 1.

Examples:

    idemstore audit events --kind duplicate_record --since 24h
    idemstore audit events --task order-7
    idemstore audit events --after 2026-11-01 --before 2026-12-01 --all --output csv --file november.csv
    idemstore audit events --since 1h --all --output json | jq -r .actor.owner | sort | uniq -c`
}

// Validate implements kong.Validatable.
func (c *auditEventsCmd) Validate() error {
	if c.File != "" && c.Output == audit.Table {
		return errors.New("--file: goes with --output json or csv")
	}
	return c.window.Validate()
}

// Run implements the subcommand.
func (c *auditEventsCmd) Run(e *env) error {
	s, err := c.session(e, c.Output)
	if err != nil {
		return err
	}
	q := c.params()
	if q.After, err = c.after(e.ctx, s); err != nil {
		return err
	}
	q.Before = c.Before.stamp()
	return s.Events(e.ctx, q, c.want(), c.File)
}

type auditStatsCmd struct {
	asking
	form
	period
}

// Help implements kong.HelpProvider.
func (auditStatsCmd) Help() string {
	return `Without a period it counts the last 24 hours.

Examples:

    idemstore audit stats
    idemstore audit stats --since 7d
    idemstore audit stats --output json | jq .in_doubt`
}

// Run implements the subcommand.
func (c *auditStatsCmd) Run(e *env) error {
	s, err := c.session(e, c.Output)
	if err != nil {
		return err
	}
	after, err := c.after(e.ctx, s)
	if err != nil {
		return err
	}
	return s.Stats(e.ctx, api.GetStatsParams{After: after, Before: c.Before.stamp()})
}

type auditWatchCmd struct {
	asking
	form
	which
	Since *since `placeholder:"AGE" help:"First show those of so long ago and later, such as 1h."`
}

// Help implements kong.HelpProvider.
func (auditWatchCmd) Help() string {
	return `It goes on when the service was away, and leaves nothing out. Ctrl-C ends it.

Examples:

    idemstore audit watch
    idemstore audit watch --kind duplicate_record --since 1h
    idemstore audit watch --output json | jq -r .task_id`
}

// Run implements the subcommand.
func (c *auditWatchCmd) Run(e *env) error {
	s, err := c.session(e, c.Output)
	if err != nil {
		return err
	}
	q := c.params()
	if q.After, err = c.Since.stamp(e.ctx, s); err != nil {
		return err
	}
	return s.Watch(e.ctx, q)
}

// given is a flag's value, nil where the flag was not given.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// since is a time, said as an age. Which time that is the service's clock says.
type since struct{ age time.Duration }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *since) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if days, ok := strings.CutSuffix(string(text), "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 || d > 10*8760*time.Hour {
		return errors.New("want an age such as 30m, 24h or 7d")
	}
	s.age = d
	return nil
}

func (s *since) stamp(ctx context.Context, session *audit.Session) (*string, error) {
	if s == nil {
		return nil, nil
	}
	at, err := session.Ago(ctx, s.age)
	return stamp(at), err
}

// when is a time.
type when struct{ time.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *when) UnmarshalText(text []byte) (err error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if w.Time, err = time.Parse(layout, string(text)); err == nil {
			return nil
		}
	}
	return errors.New("want a time such as 2026-11-29T20:00:00Z, or a day such as 2026-11-29")
}

func (w *when) stamp() *string {
	if w == nil {
		return nil
	}
	return stamp(w.Time)
}

func stamp(t time.Time) *string {
	text := t.UTC().Format(time.RFC3339Nano)
	return &text
}
