package idemstore_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents returns the text of every Markdown file that belongs to the repository, by name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: no files (%v)", pattern, err)
		}
		for _, name := range names {
			texts[name] = read(t, name)
		}
	}
	return texts
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	target  = regexp.MustCompile("`make ([a-z0-9-]+)")
	rule    = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
)

// anchors are the names under which a document's headings can be linked to.
func anchors(text string) []string {
	var names []string
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', 'a' <= r && r <= 'z', '0' <= r && r <= '9':
				return r
			}
			return -1
		}, strings.ToLower(h[1]))
		names = append(names, name)
	}
	return names
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for name, text := range documents(t) {
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(l[1], "#")
			where := name
			if file != "" {
				where = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(where); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, l[1])
			} else if anchor != "" && !slices.Contains(anchors(read(t, where)), anchor) {
				t.Errorf("%s: %s has no heading for the link %s", name, where, l[1])
			}
		}
	}
}

func TestMakeTargetsExist(t *testing.T) {
	t.Parallel()
	var rules []string
	for _, r := range rule.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		rules = append(rules, r[1])
	}
	for name, text := range documents(t) {
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(rules, m[1]) {
				t.Errorf("%s tells of make %s, which the Makefile does not have", name, m[1])
			}
		}
	}
}

// Every direct dependency has its reason in docs/dependencies.md, and nothing else has.
func TestDependenciesHaveReasons(t *testing.T) {
	t.Parallel()
	var direct []string
	for _, l := range regexp.MustCompile(`(?m)^(?:require |\t)(\S+) v\S+( // indirect)?$`).FindAllStringSubmatch(read(t, "go.mod")+read(t, "examples/go/go.mod"), -1) {
		if l[2] == "" && l[1] != "github.com/idemstore/idemstore" && !slices.Contains(direct, l[1]) {
			direct = append(direct, l[1])
		}
	}
	for _, l := range regexp.MustCompile(`(?m)^(?:tool |\t)([^\s()]+)$`).FindAllStringSubmatch(read(t, "tools/go.mod"), -1) {
		direct = append(direct, l[1])
	}
	var reasoned []string
	for _, l := range regexp.MustCompile(`(?m)^\| ([a-z0-9.-]+\.[a-z]+/\S+) \| .`).FindAllStringSubmatch(read(t, "docs/dependencies.md"), -1) {
		reasoned = append(reasoned, l[1])
	}
	slices.Sort(direct)
	slices.Sort(reasoned)
	if !slices.Equal(direct, reasoned) {
		t.Errorf("go.mod, examples/go/go.mod and tools/go.mod have\n  %s\ndocs/dependencies.md has\n  %s", strings.Join(direct, "\n  "), strings.Join(reasoned, "\n  "))
	}
}

// Every direct dependency of the program was looked through, and docs/security.md tells of no others.
func TestDependenciesAreReviewed(t *testing.T) {
	t.Parallel()
	modules := func(pattern, name string) (all []string) {
		for _, l := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, name), -1) {
			all = append(all, l[1])
		}
		slices.Sort(all)
		return all
	}
	direct, reviewed := modules(`(?m)^\t(\S+) v\S+$`, "go.mod"), modules(`(?m)^\| ([a-z0-9.-]+\.[a-z]+/\S+) \| .`, "docs/security.md")
	if len(direct) == 0 || !slices.Equal(direct, reviewed) {
		t.Errorf("go.mod has\n  %s\ndocs/security.md has\n  %s", strings.Join(direct, "\n  "), strings.Join(reviewed, "\n  "))
	}
}

// Whoever is woken by an alert finds it in the runbook, which knows of no others.
func TestAlertsAreInTheRunbook(t *testing.T) {
	t.Parallel()
	named := func(text, pattern string) (names []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	alerts := named(read(t, "deploy/prometheus/alerts.yaml"), `alert: (\w+)`)
	if told := named(read(t, "docs/runbook.md"), "`(Idemstore[A-Za-z]+)`"); len(alerts) == 0 || !slices.Equal(alerts, told) {
		t.Errorf("the alerts are %v, the runbook tells of %v", alerts, told)
	}
}

// The lines of the crash test in docs/workers.md are such as it writes: its points, its upstreams, its words.
func TestWorkersBookQuotesTheCrashTest(t *testing.T) {
	t.Parallel()
	verdicts, scenarios := read(t, "internal/crashtest/verdict.go"), read(t, "internal/crashtest/scenario.go")
	var says []*regexp.Regexp
	for _, literal := range regexp.MustCompile(`"([^"\n]{20,})"`).FindAllStringSubmatch(verdicts, -1) {
		pattern := regexp.QuoteMeta(strings.TrimSuffix(literal[1], ": %s"))
		says = append(says, regexp.MustCompile("^"+strings.NewReplacer("%d", `\d+`, "%s", `[a-z-]+`).Replace(pattern)+"$"))
	}
	lines := regexp.MustCompile(`(?m)^(\S+\.\S+) +(\S+) +(\S+) +(DUPLICATE|LOST|IN DOUBT, HIDDEN): (.+)$`).FindAllStringSubmatch(read(t, "docs/workers.md"), -1)
	if len(lines) < 10 {
		t.Fatalf("docs/workers.md quotes %d lines of the crash test, want 10 or more", len(lines))
	}
	for _, l := range lines {
		if l[3] == "-" {
			l[3] = "none"
		}
		for _, word := range l[1:4] {
			if !strings.Contains(scenarios, `"`+word+`"`) {
				t.Errorf("the crash test knows nothing of %s, which is quoted in %q", word, l[0])
			}
		}
		known := false
		for _, s := range says {
			known = known || s.MatchString(l[5])
		}
		if !known {
			t.Errorf("the crash test never says %q", l[5])
		}
	}
}
