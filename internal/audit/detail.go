package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// grant is one that the detail of an event tells of.
type grant struct {
	Owner      string `json:"owner"`
	Fence      int64  `json:"fence"`
	ReservedAt string `json:"reserved_at"`
	LeaseUntil string `json:"lease_until"`
	Dispatched bool   `json:"dispatched"`
}

// told is what the detail of an event says of earlier grants.
type told struct {
	Doubts []grant `json:"doubts"`
	From   []struct {
		Attempt int32   `json:"attempt"`
		Fence   int64   `json:"fence"`
		Doubts  []grant `json:"doubts"`
	} `json:"from"`
}

// detail shows the detail of an event as name=value, in the order of the names.
func detail(text json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return string(text)
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	var parts []string
	for _, name := range names {
		if name == "same_response" { // what one asks first of a duplicate
			parts = append(parts, sameResponse[string(members[name])])
			continue
		}
		if v := value(name, members[name]); v != "" {
			parts = append(parts, name+"="+v)
		}
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " ")
}

var sameResponse = map[string]string{"true": "the same response as recorded", "false": "another response than recorded"}

func value(name string, text json.RawMessage) string {
	var t told
	switch {
	case (name == "doubts" || name == "doubts_left") && json.Unmarshal(text, &t.Doubts) == nil:
		return grants(t.Doubts)
	case name == "from" && json.Unmarshal(text, &t.From) == nil:
		var parts []string
		for _, f := range t.From {
			parts = append(parts, fmt.Sprintf("attempt %d (%s)", f.Attempt, grants(f.Doubts)))
		}
		return strings.Join(parts, ", ")
	}
	var s string
	if json.Unmarshal(text, &s) == nil {
		if strings.ContainsAny(s, " \"=") || s == "" {
			return strconv.Quote(s)
		}
		return s
	}
	return string(text)
}

// grants are holders, each with its fence.
func grants(list []grant) string {
	names := make([]string, len(list))
	for i, g := range list {
		names[i] = fmt.Sprintf("%s#%d", g.Owner, g.Fence)
	}
	return strings.Join(names, " ")
}
