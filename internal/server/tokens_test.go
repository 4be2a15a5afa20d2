package server_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/internal/server"
)

func TestTokensFile(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("0a", 32)
	good := "w worker sha256:" + sum
	for _, text := range []string{
		good, good + "\n", "\n\n# comment\n  " + good + "  \r\n", "\t" + strings.ReplaceAll(good, " ", "\t "), "w worker,auditor,operator sha256:" + strings.ToUpper(sum),
		"A.b_c@d-9 operator sha256:" + sum + "\n" + good, strings.Repeat("n", 64) + " auditor sha256:" + sum,
	} {
		if err := new(server.Tokens).Load(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"": "no token", "\n \n#x\n": "no token", "w": "line 1", "w worker": "line 1", good + " x": "line 1", "\n" + good + "\nw2 worker": "line 3",
		"w boss sha256:" + sum: "role", "w worker, sha256:" + sum: "role", "w ,worker sha256:" + sum: "role", "w Worker sha256:" + sum: "role",
		"w worker " + sum: "hash", "w worker sha256:": "hash", "w worker sha256:" + sum[2:]: "hash", "w worker sha256:" + sum + "00": "hash", "w worker sha256:" + sum[2:] + "zz": "hash",
		"w worker sha512:" + sum: "hash", "w worker SHA256:" + sum: "hash", "-w worker sha256:" + sum: "name", "wörker worker sha256:" + sum: "name",
		strings.Repeat("n", 65) + " worker sha256:" + sum: "name", "a/b worker sha256:" + sum: "name", good + "\n" + good: "twice",
	} {
		if err := new(server.Tokens).Load(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want a fault of %s, got %v", text, want, err)
		}
	}
}

// All faults are reported at once, and none of them quotes what may be a token.
func TestFaultsOfATokensFile(t *testing.T) {
	t.Parallel()
	secret, line, err := server.NewToken("w", []server.Role{server.RoleWorker})
	if err != nil {
		t.Fatal(err)
	}
	err = new(server.Tokens).Load(strings.Join([]string{secret, "w worker " + secret, secret + " worker x", "w " + secret + " x", line, "x y", secret + " " + strings.TrimPrefix(line, "w ")}, "\n"))
	if err == nil {
		t.Fatal("loaded")
	}
	for _, part := range []string{"line 1", "line 2", "line 3", "line 4", "line 6", "line 7"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("nothing of %s in: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "line 5") {
		t.Errorf("it says too much: %v", err)
	}
}

func TestNewToken(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for range 100 {
		secret, line, err := server.NewToken("w", []server.Role{server.RoleWorker, server.RoleAuditor})
		if err != nil {
			t.Fatal(err)
		}
		if seen[secret] || !regexp.MustCompile(`^idem_[A-Za-z0-9_-]{43}$`).MatchString(secret) {
			t.Errorf("no token: %q", secret)
		}
		seen[secret] = true
		if !regexp.MustCompile(`^w worker,auditor sha256:[0-9a-f]{64}$`).MatchString(line) || strings.Contains(line, secret) {
			t.Errorf("no line: %q", line)
		}
	}
	for name, roles := range map[string][]server.Role{"": {server.RoleWorker}, "a b": {server.RoleWorker}, "w": nil, "x": {"boss"}, "y": {server.RoleWorker, ""}, "#": {server.RoleWorker}} {
		if secret, line, err := server.NewToken(name, roles); err == nil {
			t.Errorf("%q %v: made %q, %q", name, roles, secret, line)
		}
	}
}

// The time that a comparison takes must not tell how much of a hash is right. It cannot be measured here, only seen.
func TestTokensAreComparedInConstantTime(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("tokens.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "subtle.ConstantTimeCompare("); n != 1 || strings.Contains(string(source), "bytes.Equal") {
		t.Errorf("%d comparisons in constant time", n)
	}
}
