package server

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
)

// Role is what a token allows.
type Role string

const (
	RoleWorker   Role = "worker"   // reserve, dispatch, renew, record, release, replay, batch
	RoleAuditor  Role = "auditor"  // all reads but replay
	RoleOperator Role = "operator" // auditor, and resolve and the release of an owner
)

var roles = []Role{RoleWorker, RoleAuditor, RoleOperator}

// Identity is who calls: a token's name and what it may do.
type Identity struct {
	Name  string
	roles []Role
}

// May says whether the identity has the role. An operator is an auditor too.
func (id *Identity) May(r Role) bool {
	return slices.Contains(id.roles, r) || r == RoleAuditor && slices.Contains(id.roles, RoleOperator)
}

// anonymous is every caller where no tokens are asked for.
var anonymous = &Identity{Name: "anonymous", roles: roles}

// Tokens knows callers by the SHA-256 of their tokens; the tokens themselves are nowhere. The zero value, without
// Require, lets everyone in as anonymous.
type Tokens struct {
	known atomic.Pointer[[]token]
}

type token struct {
	Identity
	hash [sha256.Size]byte
}

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// Load replaces what is known by a tokens file's text: a line a token, `name role[,role] sha256:<hex>`. Blank lines and
// lines that begin with # are passed over. All faults are reported at once, and then nothing is replaced.
func (t *Tokens) Load(text string) error {
	known := []token{}
	var faults []error
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		tok, err := parseToken(line)
		if err == nil && slices.ContainsFunc(known, func(k token) bool { return k.Name == tok.Name }) {
			err = fmt.Errorf("name %q stands there twice", tok.Name)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("line %d: %w", i+1, err))
			continue
		}
		known = append(known, tok)
	}
	if len(faults) == 0 && len(known) == 0 {
		faults = append(faults, errors.New("no token in it: nobody could call"))
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	t.known.Store(&known)
	return nil
}

// parseToken does not quote the line in its errors: it may be a token that was put there by mistake.
func parseToken(line string) (token, error) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return token{}, errors.New("want three words: name role[,role] sha256:<hex>")
	}
	tok := token{Identity: Identity{Name: fields[0]}}
	if !tokenName.MatchString(tok.Name) {
		return token{}, errors.New("name: want 1 to 64 of A-Z a-z 0-9 . _ @ -, a letter or digit first")
	}
	if strings.HasPrefix(tok.Name, tokenPrefix) {
		return token{}, errors.New("name: begins as tokens do; a token itself belongs to its user, and names stand in the log")
	}
	for _, r := range strings.Split(fields[1], ",") {
		if !slices.Contains(roles, Role(r)) {
			return token{}, errors.New("role: want worker, auditor or operator, several with commas between")
		}
		tok.roles = append(tok.roles, Role(r))
	}
	digits, ok := strings.CutPrefix(fields[2], "sha256:")
	sum, err := hex.DecodeString(digits)
	if !ok || err != nil || len(sum) != sha256.Size {
		return token{}, errors.New("hash: want sha256: and 64 hexadecimal digits")
	}
	copy(tok.hash[:], sum)
	return tok, nil
}

// identify finds whose token it is.
func (t *Tokens) identify(authorization string) (*Identity, bool) {
	known := t.known.Load()
	if known == nil {
		return anonymous, true
	}
	scheme, secret, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return nil, false
	}
	if tok := find(*known, strings.TrimSpace(secret)); tok != nil {
		return &tok.Identity, true
	}
	return nil, false
}

// find compares every known hash, each in constant time.
func find(known []token, secret string) *token {
	hash := sha256.Sum256([]byte(secret))
	var found *token
	for i := range known {
		if subtle.ConstantTimeCompare(hash[:], known[i].hash[:]) == 1 {
			found = &known[i]
		}
	}
	return found
}

// tokenPrefix lets a token be told from other text, by those who look for lost ones too.
const tokenPrefix = "idem_"

// NewToken makes a token and its line for a tokens file.
func NewToken(name string, rs []Role) (secret, line string, err error) {
	words := make([]string, len(rs))
	for i, r := range rs {
		words[i] = string(r)
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	sum := sha256.Sum256([]byte(secret))
	line = fmt.Sprintf("%s %s sha256:%s", name, strings.Join(words, ","), hex.EncodeToString(sum[:]))
	if _, err := parseToken(line); err != nil {
		return "", "", err
	}
	return secret, line, nil
}
