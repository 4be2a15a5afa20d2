package idem

// Command is what a caller asks of one key: Reserve, Dispatch, Renew, Record, Release, Replay,
// Resolve or Evict.
type Command interface {
	// Target is the key that is asked about.
	Target() Key
	// Validate names the first field that cannot be, and puts the others into the form in which they are kept.
	// It returns a *FieldError.
	Validate() error

	by() string // the id of the request
	decide(d *decider)
}

// Call is what every command has.
type Call struct {
	Key
	Actor
}

// Target implements Command.
func (c *Call) Target() Key { return c.Key }

func (c *Call) by() string { return c.RequestID }

// Actor says for the trail who spoke.
type Actor struct {
	Token     string // the name of the caller's token
	RequestID string
}

// Takeover is a doubt that a worker has looked into: the newest fence of an attempt that stood in its way.
type Takeover struct {
	Attempt int32
	Fence   int64
}

// Reserve asks for the key before the side effect.
type Reserve struct {
	Call
	Owner         string
	ReservationID string // fresh and random for each delivery; the server makes one where the caller named none
	Handler       string
	RequestHash   string
	LeaseSeconds  int
	Explicit      bool // the holder promises to dispatch before its side effect
	TaskScope     bool // an earlier attempt's record is replayed too
	Takeovers     []Takeover
}

// Dispatch says that the side effect is about to begin.
type Dispatch struct {
	Call
	ReservationID string
}

// Renew asks for more time.
type Renew struct {
	Call
	ReservationID string
	LeaseSeconds  int
}

// Record keeps the response of the side effect. Without a ReservationID it is taken, under Owner, on a key that the
// next reserve would be granted.
type Record struct {
	Call
	ReservationID    string
	Owner            string
	RequestHash      string
	RetentionSeconds int // 0: the policy's
	Response         *Response
}

// Release says that the side effect did not happen.
type Release struct {
	Call
	ReservationID  string
	Reason         string
	Response       *Response // evidence: what failed
	EarlierNotDone bool      // the present holder has learned that no earlier one acted
}

// Replay asks for the recorded response, without asking for the key.
type Replay struct {
	Call
	Owner string // who it is given to
}

// Resolve is an operator's word on a key: with a Response it is recorded, without one it is released.
type Resolve struct {
	Call
	Response *Response
	Fence    int64 // the newest fence that the operator looked at
	Reason   string
	Force    bool // also while a lease is live
}

// Evict is an operator's word that an owner is gone: its grant on a key ends. Nobody else's doubt does.
type Evict struct {
	Call
	Owner  string
	Fence  int64 // of the grant that was looked at; 0: whichever it is
	Reason string
	Force  bool // also a grant that may have acted
}
