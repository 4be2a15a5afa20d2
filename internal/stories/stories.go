// Package stories are tasks to which something has happened, and what someone on call is to be told of them. The console's
// tests and the command line's tell the same ones, each to its own program: for the same task both must say the same.
package stories

import (
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
)

// Story is one of them. Times in its verdict are written TIME.
type Story struct {
	Name    string
	Tell    func(s *Scene)
	Verdict []string
	// FromOutside is the verdict of who sees only what the API shows, where entries know more than that.
	FromOutside []string
	Well        bool // that is all
}

const (
	well  = "One response is recorded, and the trail tells of no other."
	twice = "It may have happened twice: "
	ask   = " Ask the upstream how often it happened, by what it knows of the task (an order's number, an amount, a time)."
	also  = " May also have acted, never heard of again: "
)

// All are the stories.
var All = []Story{
	{Name: "plain", Well: true, Verdict: []string{well}, Tell: func(s *Scene) {
		a := s.worker("a")
		a.reserve(true)
		a.dispatch()
		a.record("ch_1")
	}},
	{Name: "incident", Tell: func(s *Scene) {
		a, b := s.overtaken()
		b.record("ch_2")
		a.record("ch_1")
	}, Verdict: []string{
		twice + "a#1 offered another response for attempt 0, at TIME, than the one that is kept. Both are in the timeline. Ask the upstream whether both stand.",
	}},
	{Name: "released by an operator, granted, and recorded late by the first", Tell: func(s *Scene) {
		a, b := s.worker("a"), s.worker("b")
		a.reserve(false)
		s.Pass(lapse)
		s.resolve(false, nil)
		b.reserve(true)
		b.dispatch()
		a.record("ch_1")
	}, Verdict: []string{twice + "a#1 recorded the response of attempt 0." + also + "b#2 (dispatched TIME, lease until TIME)." + ask}},
	{Name: "taken over, and never heard of", Tell: func(s *Scene) {
		_, b := s.overtaken()
		b.record("ch_2")
	}, Verdict: []string{twice + "b#2 recorded the response of attempt 0." + also + "a#1 (lease until TIME)." + ask}},
	{Name: "its doubt ended by retention, then a newcomer", Tell: func(s *Scene) {
		s.worker("a").reserve(false)
		s.Pass(100 * day)
		b := s.worker("b")
		b.reserve(false)
		b.record("ch_2")
	}, Verdict: []string{twice + "b#1 recorded the response of attempt 0." + also + "a#1 (lease until TIME, its key's retention ended in doubt)." + ask}},
	{Name: "its events' retention ended", Tell: func(s *Scene) {
		_, b := s.overtaken()
		b.record("ch_2")
		s.Pass(time.Hour)
		s.Forget()
	}, Verdict: []string{twice + "b#2 recorded the response of attempt 0." + also + "a#1 (lease until TIME)." + ask}, FromOutside: []string{
		"Nothing is told of who held attempt 0 at fence 1: such a grant cannot have acted, or had its lease revived, or the retention of its events has ended.",
	}},
	{Name: "old, and nothing older is kept", Tell: func(s *Scene) {
		a := s.worker("a")
		a.reserve(true)
		a.record("ch_1")
		s.Pass(2 * day)
	}, Verdict: []string{
		"One response is recorded, and the trail tells of no other; but it tells of nothing from before the first reserve at TIME, so what was offered since then may have been forgotten.",
	}},
	{Name: "old, and something older is kept", Well: true, Verdict: []string{well}, Tell: func(s *Scene) {
		other := &worker{s, "other", uuid.NewString(), idem.Key{TaskID: uuid.NewString()}}
		other.reserve(false)
		other.release(nil)
		s.Pass(time.Minute)
		a := s.worker("a")
		a.reserve(true)
		a.record("ch_1")
		s.Pass(2 * day)
	}},
	{Name: "refused to the one, recorded by the other", Tell: func(s *Scene) {
		a, b := s.worker("a"), s.worker("b")
		a.reserve(true)
		s.Pass(lapse)
		b.reserve(true)
		a.record("ch_1")
		b.record("ch_2")
	}, Verdict: []string{
		twice + "a#1 offered another response for attempt 0, at TIME, than the one that is kept. Both are in the timeline. Ask the upstream whether both stand.",
	}},
	{Name: "refused, and nothing is recorded", Tell: func(s *Scene) {
		a, b := s.worker("a"), s.worker("b")
		a.reserve(true)
		s.Pass(lapse)
		b.reserve(true)
		a.record("ch_1")
	}, Verdict: []string{
		"It may have happened: a#1 offered a response for attempt 0 at TIME, which was refused (lease_lost). It is in the timeline, and nothing is recorded.",
	}},
	{Name: "two attempts are recorded", Tell: func(s *Scene) {
		for attempt := range int32(2) {
			a := s.worker("a")
			a.key.Attempt = attempt
			a.reserve(true)
			a.record("ch_1")
		}
	}, Verdict: []string{"Attempts that are recorded: 2. Each may have had its own side effect."}},
	{Name: "an operator ruled out the first attempt, the second is recorded", Tell: func(s *Scene) {
		s.worker("a").reserve(false)
		s.Pass(lapse)
		s.resolve(false, nil)
		b := s.worker("b")
		b.key.Attempt = 1
		b.reserve(true)
		b.record("ch_2")
	}, Verdict: []string{
		twice + "on attempt 0, which has no response, there may have acted, never heard of again: a#1 (lease until TIME, alice said at TIME that it did not: \"looked it up\")." + ask,
	}},
	{Name: "let go by itself", Well: true, Verdict: []string{well}, Tell: func(s *Scene) {
		a, b := s.overtaken()
		a.release(nil)
		b.record("ch_2")
	}},
	{Name: "let go by itself too late, with what failed", Well: true, Verdict: []string{well}, Tell: func(s *Scene) {
		a, b := s.overtaken()
		b.record("ch_2")
		a.release(&idem.Response{Status: 503})
	}},
	{Name: "recorded by an operator", Well: true, Verdict: []string{well}, Tell: func(s *Scene) {
		s.worker("a").reserve(false)
		s.Pass(lapse)
		s.resolve(false, response("ch_1"))
	}},
	{Name: "a live lease ended by an operator", Tell: func(s *Scene) {
		s.worker("a").reserve(false)
		s.resolve(true, nil)
		b := s.worker("b")
		b.reserve(true)
		b.record("ch_2")
	}, Verdict: []string{
		twice + "b recorded the response of attempt 0." + also + "a#1 (lease until TIME, alice said at TIME that it did not: \"looked it up\")." + ask,
	}, FromOutside: []string{
		twice + "b recorded the response of attempt 0." + also + "whoever held fence 1 (alice said at TIME that it did not: \"looked it up\")." + ask,
	}},
	{Name: "never dispatched, then another", Well: true, Tell: func(s *Scene) {
		s.worker("a").reserve(true)
		s.Pass(lapse)
		b := s.worker("b")
		b.reserve(true)
		b.dispatch()
		b.record("ch_2")
	}, Verdict: []string{well}, FromOutside: []string{
		"Nothing is told of who held attempt 0 at fence 1: such a grant cannot have acted, or had its lease revived, or the retention of its events has ended.",
	}},
	{Name: "the same from both", Tell: func(s *Scene) {
		a, b := s.overtaken()
		b.record("ch_1")
		a.record("ch_1")
	}, Verdict: []string{
		"a#1, too, offered the response that is recorded, at TIME: the upstream knew it for the same, or it happened twice with the same answer.",
	}},
	{Name: "in doubt", Tell: func(s *Scene) {
		a := s.worker("a")
		a.reserve(true)
		a.dispatch()
		s.Pass(lapse)
	}, Verdict: []string{
		"Attempt 0 is in doubt: nobody knows whether it happened. May have acted, and was not heard of since: a#1 (dispatched TIME, lease until TIME). " +
			"Ask the upstream whether they did, by what it knows of the task (an order's number, an amount, a time), then resolve it.",
	}},
	{Name: "its doubt ended by retention, and that is all", Tell: func(s *Scene) {
		a := s.worker("a")
		a.reserve(false)
		s.Pass(100 * day)
		s.Do(&idem.Expire{Call: a.call()})
	}, Verdict: []string{
		"Nobody ever learned whether attempt 0 happened: its retention ended while it was in doubt. May have acted: a#1 (lease until TIME, its key's retention ended in doubt).",
	}},
	{Name: "in progress beside a record", Tell: func(s *Scene) {
		a, b := s.worker("a"), s.worker("b")
		a.reserve(true)
		a.record("ch_1")
		b.key.Attempt = 1
		b.reserve(false)
	}, Verdict: []string{"Attempt 1 is in progress: b#1 holds it until TIME."}},
}
