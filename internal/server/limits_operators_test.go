package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/internal/server"
)

// What operators may ask at its limit, one past it, and far past it. TestReadsAreStrict has what is no such value at all.
func TestLimitsOfOperators(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		type asked struct {
			field, path   string
			body          func(value string) obj
			good          []string
			over          []string
			goodIsUnknown bool // what is in order is about nothing that there is
		}
		get := func(field, query string, good, over []string) asked {
			return asked{field: field, path: "/v1/" + query, good: good, over: over}
		}
		names, pastNames := []string{"w", text("x", 255), text("☃", 255)}, []string{text("x", 256), text("☃", 256), text("x", 20_000)}
		reasons, pastReasons := []string{"r", text("r", 1000), text("☃", 1000)}, []string{text("r", 1001), text("☃", 1001), text("r", 50_000)}
		pages, pastPages := []string{"1", "1000"}, []string{"0", "1001", "-1", "2147483648", text("9", 1000)}
		periods := []string{"2025-11-29T00:00:00Z&before=2026-11-30T00:00:00Z"} // 366 days
		pastPeriods := []string{"2025-11-28T23:59:59.999999Z&before=2026-11-30T00:00:00Z", "0001-01-02T00:00:00Z&before=9999-12-31T23:59:59Z"}
		for _, a := range []asked{
			get("limit", "entries?limit=", pages, pastPages),
			get("limit", "events?limit=", pages, pastPages),
			get("owner", "entries?owner=", names, pastNames),
			get("handler", "entries?handler=", names, pastNames),
			get("actor", "events?actor=", names, pastNames),
			get("handler", "events?handler=", names, pastNames),
			get("task_id", "events?task_id=", []string{"t", text("t", 255)}, []string{text("t", 256), text("t", 20_000)}),
			get("cursor", "entries?cursor=", nil, []string{text("A", 1024), text("A", 1025), text("A", 20_000)}),
			get("after", "stats?after=", periods, pastPeriods),
			{field: "reason", path: "/v1/owners/none/release", body: func(v string) obj { return obj{"reason": v} }, good: reasons, over: pastReasons},
			{
				field: "reason", path: s.key(t).path("resolve"), body: func(v string) obj { return obj{"action": "release", "fence": 1, "reason": v} },
				good: reasons, over: pastReasons, goodIsUnknown: true,
			},
			{
				field: "fence", path: s.key(t).path("resolve"), body: func(v string) obj { return obj{"action": "release", "fence": num(v), "reason": "r"} },
				good: []string{"1", "9223372036854775807"}, over: []string{"0", "9223372036854775808", text("9", 1000)}, goodIsUnknown: true,
			},
		} {
			send := func(value string) answer {
				c := call{method: http.MethodGet, path: a.path + value, wrong: true}
				if a.body != nil {
					c = call{method: http.MethodPost, path: a.path, body: a.body(value), wrong: true}
				} else if a.field != "after" {
					c.path = a.path + url.QueryEscape(value)
				}
				return s.send(t, c)
			}
			for _, value := range a.good {
				if got := send(value); got.status != 200 && !(a.goodIsUnknown && got.status == 404) {
					t.Errorf("%s %.60s: %s", a.path, value, got)
				}
			}
			for _, value := range a.over {
				if got := send(value); got.status != 400 || got.body["field"] != a.field {
					t.Errorf("%s %.60s: want %s to be named, got %s", a.path, value, a.field, got)
				}
			}
		}
		for owner, want := range map[string]int{"w": 200, text("x", 255): 200, text("x", 256): 400, text("x", 20_000): 400} {
			if got := s.releaseOwner(t, owner, obj{"reason": "r"}); got.status != want {
				t.Errorf("the owner of %d characters: %s", len(owner), got)
			}
		}
	})
}

// Tokens and their file at their limits.
func TestLimitsOfTokens(t *testing.T) {
	t.Parallel()
	for length, good := range map[int]bool{1: true, 64: true, 65: false, 100_000: false, 0: false} {
		_, line, err := server.NewToken(text("n", length), []server.Role{server.RoleWorker})
		if (err == nil) != good || err != nil && line != "" {
			t.Errorf("a name of %d: %v", length, err)
		}
	}
	hash := " worker sha256:" + text("a", 64)
	for file, good := range map[string]bool{
		"n sha256:" + text("a", 64):                         false,
		"n worker sha256:" + text("a", 63):                  false,
		"n worker sha256:" + text("a", 65):                  false,
		"n worker sha256:" + text("a", 1<<20):               false,
		"n worker,auditor,operator sha256:" + text("F", 64): true,
		text("#\n", 1<<20) + "n" + hash:                     true,
		"n" + hash + text(" ", 1<<20):                       true,
		"n" + hash + "\n" + strings.Repeat("\x00", 1<<10):   false,
		"n" + hash + strings.Repeat("\nm"+hash, 2):          false,
		strings.ReplaceAll("n"+hash, " ", "\u00a0"):         true, // white space is white space
		text("x", 1<<20):                                    false,
	} {
		if err := new(server.Tokens).Load(file); (err == nil) != good {
			t.Errorf("%.60q: %v", file, err)
		}
	}
	var many strings.Builder
	var last string
	for i := range 5000 {
		secret, line, err := server.NewToken(fmt.Sprint("w-", i), []server.Role{server.RoleWorker})
		if err != nil {
			t.Fatal(err)
		}
		last = secret
		many.WriteString(line + "\n")
	}
	s := start(t, setup{database: inMemory, tokens: many.String()})
	for token, want := range map[string]int{last: 404, last + "x": 401, text("x", 20_000): 401} {
		c := call{method: http.MethodGet, path: s.key(t).path("replay"), header: map[string]string{"Authorization": "Bearer " + token}}
		if got := s.send(t, c); got.status != want {
			t.Errorf("one of 5000 tokens, %.20s: %s", token, got)
		}
	}
}
