package main

import (
	"errors"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/audit"
)

type auditResolveCmd struct {
	asking
	form
	key
	Release      bool     `xor:"action" help:"Say that the effect did not happen; the next reserve is granted."`
	RecordStatus int      `xor:"action" placeholder:"STATUS" help:"Record a response with this status, such as 201."`
	RecordHeader []string `sep:"none" placeholder:"HEADER" help:"With --record-status: a header of it, such as \"Content-Type: application/json\". May be repeated."`
	RecordBody   string   `placeholder:"FILE" help:"With --record-status: the file with its body; - reads standard input. Without it there is no body."`
	ResponseFile string   `xor:"action" placeholder:"FILE" help:"Record the response in this file, JSON as the service shows a response; - reads standard input."`
	Fence        int64    `help:"The newest fence of the entry that you looked at. Without it the entry is shown, and nothing is done."`
	Reason       string   `placeholder:"TEXT" help:"How it is known; stays in the trail. Required with --fence, 1 to 1000 characters."`
	Force        bool     `help:"Also where a live lease holds the key."`
	Yes          bool     `short:"y" help:"Do not ask."`
	Bodies       bool     `help:"Show bodies whole."`
}

// Help implements kong.HelpProvider.
func (auditResolveCmd) Help() string {
	return `It shows the entry and what will be done to it, and asks. The word, the reason and who gave it stay in the trail.

Examples:

    idemstore audit resolve order-7 0
    idemstore audit resolve order-7 0 --release --fence 2 --reason "upstream has no charge for order-7"
    idemstore audit resolve order-7 0 --record-status 201 --record-body charge.json --fence 2 --reason "found the charge upstream"
    idemstore audit entry order-6 0 -o json | jq .response | idemstore audit resolve order-7 0 --response-file - --fence 2 --reason "the same charge" --yes`
}

// Validate implements kong.Validatable.
func (c *auditResolveCmd) Validate() error {
	switch {
	case c.Fence > 0 && !c.Release && c.RecordStatus == 0 && c.ResponseFile == "":
		return errors.New("--release, --record-status or --response-file: one of them is required with --fence")
	case c.RecordStatus == 0 && (c.RecordBody != "" || len(c.RecordHeader) > 0):
		return errors.New("--record-body and --record-header go with --record-status")
	case c.Fence < 0:
		return errors.New("--fence: want 1 or more")
	case c.Fence > 0 && c.Reason == "":
		return errors.New("--reason: is required with --fence")
	case c.Fence > 0 && !c.Yes && (c.RecordBody == "-" || c.ResponseFile == "-"):
		return errors.New("--yes: is required where standard input is the response, since nobody can be asked")
	}
	return nil
}

// Run implements the subcommand.
func (c *auditResolveCmd) Run(e *env) error {
	s, err := c.session(e, c.Output)
	if err != nil {
		return err
	}
	s.Bodies = c.Bodies
	r := audit.Resolution{Task: c.Task, Attempt: c.Attempt, Fence: c.Fence, Reason: c.Reason, Force: c.Force, Yes: c.Yes}
	if c.Fence > 0 && !c.Release {
		if r.Response, err = c.response(s); err != nil {
			return err
		}
	}
	return s.Resolve(e.ctx, r)
}

// response is what shall be recorded.
func (c *auditResolveCmd) response(s *audit.Session) (*api.OfferedResponse, error) {
	if c.ResponseFile != "" {
		return s.ResponseFile(c.ResponseFile)
	}
	return s.Response(c.RecordStatus, c.RecordHeader, c.RecordBody)
}

type auditReleaseOwnerCmd struct {
	asking
	form
	Owner  string `arg:"" help:"The owner's name."`
	Reason string `required:"" placeholder:"TEXT" help:"How it is known that it is gone; stays in the trail. 1 to 1000 characters."`
	Force  bool   `help:"Also what it may have acted on, which says that it did not."`
	Yes    bool   `short:"y" help:"Do not ask."`
}

// Help implements kong.HelpProvider.
func (auditReleaseOwnerCmd) Help() string {
	return `By itself it releases only grants that cannot have acted: those that promised to dispatch, and never did. It shows what the owner holds and asks, then releases that and nothing that came since; with --yes, all that is found. It answers key by key. If keys stay with the owner the exit status is 4.

Examples:

    idemstore audit release-owner worker-7 --reason "machine was scrapped"
    idemstore audit release-owner worker-7 --reason "it never had network" --force --yes`
}

// Run implements the subcommand.
func (c *auditReleaseOwnerCmd) Run(e *env) error {
	s, err := c.session(e, c.Output)
	if err != nil {
		return err
	}
	return s.ReleaseOwner(e.ctx, c.Owner, c.Reason, c.Force, c.Yes)
}
