package verdict

import (
	"fmt"
	"strings"
	"time"
)

// offers judges the responses that were offered and are not the one that is kept. The word of a release is that nothing
// happened, whatever response came with it.
func (k *knowledge) offers(events []Event) {
	type offer struct {
		attempt         int32
		owner, response string
	}
	seen := make(map[offer]bool)
	for i := range events {
		e, t := &events[i], detailOf(&events[i])
		if e.Kind != "duplicate_record" && e.Kind != "refused_record" || e.Response == "" || t.Verb == "release" {
			continue
		}
		if this := (offer{e.Attempt, e.Owner, e.Response}); !seen[this] {
			seen[this] = true
			k.offered(e, t)
		}
	}
}

func (k *knowledge) offered(e *Event, t told) {
	who, about := k.offerer(e, t), e.Attempt
	if t.RecordedAttempt != nil {
		about = *t.RecordedAttempt
	}
	same, kept := t.SameResponse != nil && *t.SameResponse, t.SameResponse != nil
	for i := range k.attempts {
		if a := &k.attempts[i]; !a.RecordedAt.IsZero() && t.SameResponse == nil {
			kept, same = true, same || a.Response == e.Response
		}
	}
	switch {
	case !kept:
		k.say(Doubt, "It may have happened: %s offered a response for attempt %d at %s, which was refused (%s). It is in the timeline, and nothing is recorded.",
			who, e.Attempt, clock(e.At), t.Code).Evidence = e.ID
	case same && t.Verb == "resolve": // an operator found what is kept
	case same:
		k.say(Doubt, "%s, too, offered the response that is recorded, at %s: the upstream knew it for the same, or it happened twice with the same answer.",
			who, clock(e.At)).Evidence = e.ID
	default:
		k.say(Bad, "It may have happened twice: %s offered another response for attempt %d, at %s, than the one that is kept. Both are in the timeline. "+
			"Ask the upstream whether both stand.", who, about, clock(e.At)).Evidence = e.ID
	}
}

// offerer is who offered a response. The fence beside it is the offerer's own only where its grant is known.
func (k *knowledge) offerer(e *Event, t told) string {
	if g := k.find(e.Attempt, e.Fence, e.At); t.Code == "lease_lost" || g != nil && g.Owner == e.Owner {
		return name(&Grant{Owner: e.Owner, Fence: e.Fence})
	}
	return e.Owner
}

// names are grants with what is known of each.
func (k *knowledge) names(list []*known) string {
	more := len(list) - maxNamed
	if more > 0 {
		list = list[:maxNamed]
	}
	parts := make([]string, len(list))
	for i, g := range list {
		parts[i] = name(&g.Grant) + about(g)
	}
	text := strings.Join(parts, "; ")
	if more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

func name(g *Grant) string {
	switch {
	case g.Owner == "":
		return fmt.Sprintf("whoever held fence %d", g.Fence)
	case g.Fence == 0:
		return g.Owner
	}
	return fmt.Sprintf("%s#%d", g.Owner, g.Fence)
}

// about is since when nobody heard of a grant, and what others said of it.
func about(g *known) string {
	var parts []string
	switch {
	case !g.DispatchedAt.IsZero():
		parts = append(parts, "dispatched "+clock(g.DispatchedAt))
	case g.Dispatched:
		parts = append(parts, "dispatched")
	}
	if !g.LeaseUntil.IsZero() {
		parts = append(parts, "lease until "+clock(g.LeaseUntil))
	}
	if g.purged {
		parts = append(parts, "its key's retention ended in doubt")
	}
	if g.ruledOut != "" {
		parts = append(parts, g.ruledOut)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
