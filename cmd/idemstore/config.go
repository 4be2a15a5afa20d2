package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

// settings are the flags of serve, as they were given. Each is also an environment variable; a flag wins. They are text
// here so that everything that cannot be is reported at once.
type settings struct {
	DatabaseURL      string `name:"database-url" env:"IDEMSTORE_DATABASE_URL" default:"sqlite:idemstore.db" help:"postgres://..., sqlite:PATH, or sqlite::memory: for tests (${env})."`
	Listen           string `env:"IDEMSTORE_LISTEN" default:"127.0.0.1:8080" help:"Address of the API, host:port; port 0 takes a free one (${env})."`
	MetricsListen    string `env:"IDEMSTORE_METRICS_LISTEN" default:"127.0.0.1:9090" help:"Address of /metrics, host:port; empty: none (${env})."`
	TokensFile       string `env:"IDEMSTORE_TOKENS_FILE" help:"File with a line a token: name role[,role] sha256:<hex>. Read again on SIGHUP (${env})."`
	Auth             string `env:"IDEMSTORE_AUTH" default:"tokens" help:"tokens, or none: everybody may do everything (${env})."`
	TLSCert          string `name:"tls-cert" env:"IDEMSTORE_TLS_CERT" help:"File with the PEM certificate chain of the API. Read again on SIGHUP (${env})."`
	TLSKey           string `name:"tls-key" env:"IDEMSTORE_TLS_KEY" help:"File with the PEM private key to it (${env})."`
	Retention        string `env:"IDEMSTORE_RETENTION" default:"336h" help:"How long recorded and released keys are kept; a duration, 1h to 8760h (${env})."`
	InDoubtRetention string `env:"IDEMSTORE_IN_DOUBT_RETENTION" default:"2160h" help:"How long all other keys are kept after their lease; a duration, 24h or more (${env})."`
	EventRetention   string `env:"IDEMSTORE_EVENT_RETENTION" default:"2160h" help:"How long events are kept; a duration, 24h or more (${env})."`
	MaxBodyBytes     string `env:"IDEMSTORE_MAX_BODY_BYTES" default:"1048576" help:"Largest body of a recorded response, in bytes, up to 16777216 (${env})."`
	KeyTemplate      string `env:"IDEMSTORE_KEY_TEMPLATE" default:"conduit-task-{task_id}" help:"Template of idempotency_key; {task_id} and {attempt} are replaced (${env})."`
	DeniedHeaders    string `env:"IDEMSTORE_DENIED_HEADERS" default:"${denied}" help:"Response headers that are never kept, with commas between (${env})."`
	LogLevel         string `env:"IDEMSTORE_LOG_LEVEL" default:"info" help:"trace, debug, info, warn or error (${env})."`
	LogFormat        string `env:"IDEMSTORE_LOG_FORMAT" default:"json" help:"json, or console for people (${env})."`
}

// config is what settings come to.
type config struct {
	databaseURL    string
	listen         string
	metricsListen  string
	tokensFile     string
	tokens         *server.Tokens
	openToAll      bool
	certificate    *tls.Certificate
	policy         idem.Policy
	eventRetention time.Duration
	server         server.Config
	logLevel       zerolog.Level
	logForPeople   bool
}

const (
	minRetention        = time.Hour
	maxRetention        = 8760 * time.Hour
	minInDoubtRetention = 24 * time.Hour
	maxLongRetention    = 10 * 8760 * time.Hour
)

// resolve checks every setting and reports all that cannot be.
func (s settings) resolve() (config, error) {
	c := config{databaseURL: s.DatabaseURL, listen: s.Listen, metricsListen: s.MetricsListen, tokensFile: s.TokensFile}
	var faults []error
	check := func(variable string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", variable, err))
		}
	}
	var err error
	check("IDEMSTORE_DATABASE_URL", checkDatabaseURL(s.DatabaseURL))
	check("IDEMSTORE_LISTEN", checkAddress(s.Listen))
	if s.MetricsListen != "" {
		check("IDEMSTORE_METRICS_LISTEN", checkAddress(s.MetricsListen))
	}
	c.policy.Retention, err = duration(s.Retention, minRetention, maxRetention)
	check("IDEMSTORE_RETENTION", err)
	c.policy.InDoubtRetention, err = duration(s.InDoubtRetention, minInDoubtRetention, maxLongRetention)
	check("IDEMSTORE_IN_DOUBT_RETENTION", err)
	c.eventRetention, err = duration(s.EventRetention, minInDoubtRetention, maxLongRetention)
	check("IDEMSTORE_EVENT_RETENTION", err)
	c.server.MaxBodyBytes, err = bodyBytes(s.MaxBodyBytes)
	check("IDEMSTORE_MAX_BODY_BYTES", err)
	c.server.KeyTemplate = s.KeyTemplate
	check("IDEMSTORE_KEY_TEMPLATE", checkTemplate(s.KeyTemplate))
	c.server.DeniedHeaders, err = headerNames(s.DeniedHeaders)
	check("IDEMSTORE_DENIED_HEADERS", err)
	c.logLevel, err = logLevel(s.LogLevel)
	check("IDEMSTORE_LOG_LEVEL", err)
	c.logForPeople = s.LogFormat == "console"
	if s.LogFormat != "console" && s.LogFormat != "json" {
		check("IDEMSTORE_LOG_FORMAT", fmt.Errorf("%q is neither json nor console", s.LogFormat))
	}
	if s.TLSCert != "" || s.TLSKey != "" {
		c.certificate, err = loadCertificate(s.TLSCert, s.TLSKey)
		check("IDEMSTORE_TLS_CERT, IDEMSTORE_TLS_KEY", err)
	}
	check("IDEMSTORE_AUTH", s.checkAuth())
	c.tokens, c.openToAll = new(server.Tokens), s.TokensFile == ""
	if s.TokensFile != "" {
		check("IDEMSTORE_TOKENS_FILE", loadTokens(c.tokens, s.TokensFile))
	}
	return c, errors.Join(faults...)
}

// checkAuth refuses to let everybody in from elsewhere, unless that was said out loud.
func (s settings) checkAuth() error {
	switch s.Auth {
	case "tokens":
		if s.TokensFile == "" && checkAddress(s.Listen) == nil && !loopback(s.Listen) {
			return fmt.Errorf("without IDEMSTORE_TOKENS_FILE everybody who reaches %s could do everything; "+
				"give a tokens file, listen on loopback, or say IDEMSTORE_AUTH=none", s.Listen)
		}
	case "none":
		if s.TokensFile != "" {
			return errors.New("none contradicts IDEMSTORE_TOKENS_FILE; take one of them away")
		}
	default:
		return fmt.Errorf("%q is neither tokens nor none", s.Auth)
	}
	return nil
}

func checkDatabaseURL(u string) error {
	scheme, rest, _ := strings.Cut(u, ":")
	if (scheme == "postgres" || scheme == "postgresql") && strings.HasPrefix(rest, "//") || scheme == "sqlite" && rest != "" {
		return store.CheckURL(u)
	}
	return errors.New("want postgres://HOST/DATABASE, sqlite:PATH, or sqlite::memory: for tests") // not quoted: there may be a password in it
}

func checkAddress(a string) error {
	_, port, err := net.SplitHostPort(a)
	if err != nil {
		return fmt.Errorf("%q is not host:port", a)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q has no port of 0 to 65535", a)
	}
	return nil
}

func loopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func duration(s string, low, high time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 336h", s)
	}
	if d < low || d > high {
		return 0, fmt.Errorf("%s is not within %gh to %gh", s, low.Hours(), high.Hours())
	}
	return d, nil
}

func bodyBytes(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > server.MaxMaxBodyBytes {
		return 0, fmt.Errorf("%q is not a number of bytes from 1 to %d", s, server.MaxMaxBodyBytes)
	}
	return n, nil
}

// checkTemplate refuses a template that would give two tasks one key, or that cannot be a header value.
func checkTemplate(t string) error {
	if !strings.Contains(t, "{task_id}") {
		return fmt.Errorf("%q has no {task_id} in it: all tasks would share one key", t)
	}
	if len(t) > 255 || strings.ContainsFunc(t, func(r rune) bool { return r < ' ' || r > '~' }) {
		return errors.New("want at most 255 visible ASCII characters")
	}
	return nil
}

func headerNames(s string) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if strings.ContainsFunc(name, notToken) {
			return nil, fmt.Errorf("%q is not the name of a header", name)
		}
		names = append(names, name)
	}
	return names, nil
}

// notToken says of a character that no header's name may have it (RFC 9110, section 5.6.2).
func notToken(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func logLevel(s string) (zerolog.Level, error) {
	switch s {
	case "trace", "debug", "info", "warn", "error":
		return zerolog.ParseLevel(s)
	}
	return zerolog.InfoLevel, fmt.Errorf("%q is none of trace, debug, info, warn, error", s)
}

func loadCertificate(cert, key string) (*tls.Certificate, error) {
	if cert == "" || key == "" {
		return nil, errors.New("one goes with the other; give both")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	return &pair, err
}

func loadTokens(t *server.Tokens, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return t.Load(string(text))
}
