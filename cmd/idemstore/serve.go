package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/idemstore/idemstore/internal/console"
	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/metrics"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

const (
	// stopBudget bounds everything between SIGTERM and exit. Orchestrators give 30 seconds.
	stopBudget = 20 * time.Second
	// stopNotice is how long a service that is told to stop still takes requests while it says that it is not ready, so
	// that a load balancer can look away first.
	stopNotice = time.Second

	// Time-outs against slow clients. A request may wait a minute for a key and ten seconds for the store.
	headerTime = 5 * time.Second
	readTime   = 30 * time.Second
	writeTime  = 100 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 32 << 10

	upkeepEvery = 6 * time.Hour

	// gcPercent, unless GOGC says otherwise: what lives is small (tens of megabytes), and at Go's 100 collecting it took a
	// ninth of the service's CPU under load. GOMEMLIMIT is heeded as ever; see limitMemory.
	gcPercent = 400
)

type serveCmd struct {
	settings
}

// Run implements the subcommand.
func (c *serveCmd) Run(e *env) error {
	conf, err := c.resolve()
	if err != nil {
		return usageError{fmt.Errorf("this configuration cannot be:\n%w", err)}
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	log := newLogBuffer(e.stdout)
	defer log.close()
	v := newService(conf, c.settings, log)
	v.limitMemory(memlimit.FromCgroup)
	return v.run(e.ctx)
}

// limitMemory has garbage collected sooner where the container's memory ends, and not only by gcPercent: a flood would
// be the container's end. A GOMEMLIMIT from the environment stands.
func (v *service) limitMemory(container memlimit.Provider) {
	limit, err := memlimit.Set(memlimit.WithProvider(container))
	switch {
	case err != nil:
		v.log.Debug().Err(err).Msg("the container's memory limit is not known")
	case limit != math.MaxInt64:
		v.log.Info().Int64("bytes", limit).Msg("memory limit")
	}
}

// keeper is what carries commands out, and is closed when the last of them is committed.
type keeper interface {
	idem.Keeper
	Close()
}

// service is a running idemstore.
type service struct {
	config
	settings    settings
	log         zerolog.Logger
	certificate atomic.Pointer[tls.Certificate]
	hangup      chan os.Signal

	registry *prometheus.Registry
	metrics  *metrics.Metrics
	tracing  *tracing
	backend  store.Backend
	keeper   keeper
	server   *server.Server
	http     *http.Server
}

func newService(c config, s settings, logTo *logBuffer) *service {
	var out io.Writer = logTo
	if c.logForPeople {
		out = zerolog.ConsoleWriter{Out: logTo, TimeFormat: time.TimeOnly, NoColor: logTo.out != os.Stdout || !terminal(os.Stdout)}
	}
	v := &service{config: c, settings: s, hangup: make(chan os.Signal, 1), log: zerolog.New(out).Level(c.logLevel).With().Timestamp().Logger()}
	v.certificate.Store(c.certificate)
	v.registry = newRegistry()
	v.metrics = metrics.New(v.registry, version())
	v.config.server.Observer = v.metrics
	return v
}

// terminal says whether a person is likely to be looking.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// run serves until the context ends: bind, open, serve; then not ready, drain, flush, close.
func (v *service) run(ctx context.Context) error {
	// Before anybody can know that it runs: SIGHUP ends a program that has not said otherwise.
	signal.Notify(v.hangup, syscall.SIGHUP)
	defer signal.Stop(v.hangup)
	api, err := listen(ctx, v.listen)
	if err != nil {
		return err
	}
	defer api.Close()
	metrics, err := listenIf(ctx, v.metricsListen)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if v.tracing, err = newTracing(ctx, v.log); err != nil {
		return err
	}
	if v.backend, err = store.Open(ctx, v.databaseURL, v.tracing.options()); err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	defer v.backend.Close()
	if err := v.checkStore(ctx); err != nil {
		return err
	}
	batcher := store.NewBatcher(v.metrics.Store(v.backend), v.policy, store.Lanes(v.backend))
	v.measure(v.metrics, batcher)
	v.tracing.rounds(batcher)
	v.keeper = batcher
	if os.Getenv("IDEMSTORE_TEST_ONE_AT_A_TIME") != "" { // only for the benchmark, to show what group commit is worth
		v.keeper = store.NewDirect(v.backend, v.policy)
	}
	tally := console.NewTally(v.keeper, time.Now)
	v.server = server.New(tally, v.backend, v.tokens, v.log, v.config.server)
	v.mountConsole(tally)
	v.http = v.newHTTP(v.tracing.handler(v.server))
	v.announce(api.Addr(), metrics)
	return v.serve(ctx, api, metrics)
}

// checkStore refuses to start on a schema of another version. A store that cannot be reached yet is waited for while
// /readyz says so: databases and services start in any order.
func (v *service) checkStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := v.backend.Ready(ctx)
	if errors.Is(err, store.ErrSchema) {
		return err
	}
	if err != nil {
		v.log.Warn().Err(err).Msg("the store cannot serve yet; not ready until it can")
	}
	return nil
}

// serve runs the listeners and the upkeep until the context ends or one of them fails, then stops in order.
func (v *service) serve(ctx context.Context, api, metrics net.Listener) error {
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		var err error
		if v.config.certificate != nil {
			err = v.http.ServeTLS(api, "", "")
		} else {
			err = v.http.Serve(api)
		}
		return ignoreClosed(err)
	})
	aside := v.newAside()
	if metrics != nil {
		group.Go(func() error { return ignoreClosed(aside.Serve(metrics)) })
	}
	group.Go(func() error { v.keepUp(running); return nil })
	group.Go(func() error { v.purge(running); return nil })
	group.Go(func() error { v.reloadOnHangup(running); return nil })
	group.Go(func() error {
		<-running.Done()
		defer aside.Close()
		return v.stop()
	})
	return group.Wait()
}

// stop ends the service in order, within its budget.
func (v *service) stop() error {
	v.log.Info().Dur("budget_ms", stopBudget).Msg("stopping: not ready, draining")
	ctx, cancel := context.WithTimeout(context.Background(), stopBudget)
	defer cancel()
	v.server.Drain()
	select {
	case <-time.After(stopNotice):
	case <-ctx.Done():
	}
	err := v.http.Shutdown(ctx)
	if err != nil {
		_ = v.http.Close()
		err = fmt.Errorf("requests were still open after %s: %w", stopBudget, err)
	}
	flushed := make(chan struct{})
	go func() { v.keeper.Close(); close(flushed) }()
	select {
	case <-flushed:
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("the last commands were not committed within %s", stopBudget))
	}
	v.tracing.close(ctx)
	v.log.Info().Msg("stopped")
	return err
}

// keepUp does the store's upkeep now and every few hours.
func (v *service) keepUp(ctx context.Context) {
	ticker := time.NewTicker(upkeepEvery)
	defer ticker.Stop()
	for {
		if err := v.backend.Upkeep(ctx); err != nil && ctx.Err() == nil {
			v.log.Warn().Err(err).Msg("upkeep failed; it is tried again in a few hours and nothing is lost")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// purge deletes what is past its retention.
func (v *service) purge(ctx context.Context) {
	purger := store.NewPurger(v.backend, v.keeper, v.eventRetention)
	purger.Told = func(swept store.Swept) {
		v.metrics.Purged(swept.Deleted, swept.Behind)
		if swept.Deleted > 0 || swept.Ended > 0 {
			v.log.Debug().Int("entries", swept.Deleted).Int("in_doubt", swept.Ended).Dur("lag_ms", swept.Behind).Msg("purged")
		}
	}
	purger.ToldEvents = func(swept store.SweptEvents) {
		v.metrics.PurgedEvents(swept.Deleted, len(swept.Weeks))
		if swept.Deleted > 0 || len(swept.Weeks) > 0 || len(swept.Waiting) > 0 {
			v.log.Info().Int("events", swept.Deleted).Strs("partitions", swept.Weeks).Strs("waiting", swept.Waiting).Msg("purged the trail")
		}
	}
	purger.Run(ctx, func(err error) {
		v.metrics.PurgeFailed()
		v.log.Warn().Err(err).Msg("the purge goes on a little later; nothing is lost")
	})
}

// reloadOnHangup reads tokens and certificate again on SIGHUP. What cannot be read leaves the old in place.
func (v *service) reloadOnHangup(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.hangup:
		}
		var err error
		if v.tokensFile != "" {
			err = loadTokens(v.tokens, v.tokensFile)
		}
		if v.config.certificate != nil {
			pair, certErr := loadCertificate(v.settings.TLSCert, v.settings.TLSKey)
			if certErr == nil {
				v.certificate.Store(pair)
			}
			err = errors.Join(err, certErr)
		}
		if err != nil {
			v.log.Error().Err(err).Msg("SIGHUP: what cannot be read stays as it was")
			continue
		}
		v.log.Info().Msg("SIGHUP: tokens and certificate were read again")
	}
}

func (v *service) newHTTP(handler http.Handler) *http.Server {
	h := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime,
		IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, ErrorLog: stdlog.New(connectionLog{v.log}, "", 0),
		DisableGeneralOptionsHandler: true, // what is asked of "*" is answered and logged as all else
	}
	if v.config.certificate != nil {
		h.TLSConfig = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return v.certificate.Load(), nil },
		}
	}
	return h
}

// newAside serves metrics and profiles. A profile takes as long to write as it is asked to.
func (v *service) newAside() *http.Server {
	return &http.Server{
		Handler: metricsHandler(v.registry), ReadHeaderTimeout: headerTime, ReadTimeout: readTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: stdlog.New(connectionLog{v.log}, "", 0),
	}
}

// connectionLog takes what net/http has to say of connections. Whoever can reach the listener can fail handshakes at will.
type connectionLog struct{ log zerolog.Logger }

func (c connectionLog) Write(line []byte) (int, error) {
	level := zerolog.WarnLevel
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		level = zerolog.DebugLevel
	}
	c.log.WithLevel(level).Msg(string(bytes.TrimSpace(line)))
	return len(line), nil
}

func (v *service) announce(api net.Addr, metrics net.Listener) {
	line := v.log.Info().Str("listen", api.String()).Str("version", version()).Bool("tls", v.config.certificate != nil)
	if metrics != nil {
		line.Str("metrics", metrics.Addr().String())
	}
	line.Msg("idemstore serves")
	if v.openToAll {
		v.log.Warn().Msg("no tokens: every caller is anonymous and may do everything")
	}
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

func listenIf(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	return listen(ctx, address)
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
