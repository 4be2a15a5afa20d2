package metrics

import (
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
)

// verbs are those of a key: what each counts, and how it is answered when it succeeds.
var verbs = map[string]struct {
	help    string
	success idem.Code
}{
	"reserve":  {"Reserves that were answered; those with the outcome recorded were replays.", idem.CodeReserved},
	"dispatch": {"Dispatches that were answered.", idem.CodeDispatched},
	"renew":    {"Renewals that were answered.", idem.CodeRenewed},
	"record":   {"Records that were answered.", idem.CodeRecorded},
	"release":  {"Releases that were answered.", idem.CodeReleased},
	"replay":   {"Replays that were asked for by that verb.", idem.CodeRecorded},
	"resolve":  {"Operators' resolutions that were answered.", idem.CodeReleased},
	"evict":    {"Keys of owners that operators called gone.", idem.CodeReleased},
}

// answers counts what commands were answered, each item of a batch by itself.
type answers struct {
	byVerb   map[string]*counters[answer]
	repeated *counters[repeated]
}

type answer struct{ outcome, handler string }

type repeated struct {
	verb string
	answer
}

func (a *answers) register(f promauto.Factory) {
	a.byVerb = make(map[string]*counters[answer], len(verbs))
	for verb, of := range verbs {
		c := newCounters(f.NewCounterVec(counter(verb+"_total", of.help), []string{"outcome", "handler"}),
			func(a answer) []string { return []string{a.outcome, a.handler} })
		c.get(answer{string(of.success), noHandler}) // there from the start
		a.byVerb[verb] = c
	}
	a.repeated = newCounters(f.NewCounterVec(counter("repeated_refusals_total",
		"Refusals that came again within the hour, so that the trail has them once."), []string{"verb", "outcome", "handler"}),
		func(r repeated) []string { return []string{r.verb, r.outcome, r.handler} })
	a.repeated.get(repeated{"record", answer{string(idem.CodeNotHolder), noHandler}})
}

// Answered implements server.Observer.
func (m *Metrics) Answered(a server.Answered) {
	c := m.byVerb[a.Verb]
	if c == nil {
		return
	}
	key := answer{string(a.Code), m.handlers.label(a.Handler)}
	c.get(key).Inc()
	if a.Repeated {
		m.repeated.get(repeated{a.Verb, key}).Inc()
	}
}
