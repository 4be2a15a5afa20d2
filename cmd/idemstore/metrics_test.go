package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
)

const (
	alerts    = "../../deploy/prometheus/alerts.yaml"
	dashboard = "../../deploy/grafana/idemstore.json"
)

// family is what a scrape says of one metric.
type family struct {
	kind   string
	labels map[string]bool
	series map[string]string // values, by the labels as they are written
}

var seriesLine = regexp.MustCompile(`^([a-z0-9_]+)(?:\{(.*)\})? (\S+)$`)

// scrape is what /metrics says, by the name of each metric, and as it is.
func (p *program) scrape() (map[string]*family, string) {
	p.t.Helper()
	all := map[string]*family{}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.logLine("idemstore serves", "metrics")+"/metrics", http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		p.t.Fatalf("%d %v %s", res.StatusCode, err, text)
	}
	var now string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if kind, ok := strings.CutPrefix(line, "# TYPE "); ok {
			now, kind, _ = strings.Cut(kind, " ")
			all[now] = &family{kind: kind, labels: map[string]bool{}, series: map[string]string{}}
		}
		m := seriesLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		f := all[now]
		f.series[strings.TrimPrefix(m[1], now)+m[2]] = m[3]
		for label := range strings.SplitSeq(m[2], `",`) {
			if name, _, _ := strings.Cut(label, "="); name != "" && name != "le" {
				f.labels[name] = true
			}
		}
	}
	return all, string(text)
}

// logLine is a member of the first line of the log with a message.
func (p *program) logLine(message, member string) string {
	for line := range strings.Lines(p.logged()) {
		if value := memberOf(line, message, member); value != "" {
			return value
		}
	}
	p.t.Fatalf("not in the log: %s", message)
	return ""
}

// memberOf is a member of a line of the log, in whichever form that is, if it has the message.
func memberOf(line, message, member string) string {
	if !strings.Contains(line, message) {
		return ""
	}
	if m := regexp.MustCompile(`\b` + member + `"?[=:]"?([^" \n]+)`).FindStringSubmatch(line); m != nil {
		return m[1]
	}
	return ""
}

// incident has every verb answered, and a worker vanish: it is taken over, records late, and the other's record comes second. A
// second key stays in doubt.
func (p *program) incident(task, owner string) {
	t := p.t
	t.Helper()
	key := p.task(task)
	post := func(verb, body string) answer { return send("POST", key+"/"+verb, "", body) }
	first, second := uuid.NewString(), uuid.NewString()
	post("reserve", fmt.Sprintf(`{"owner":%q,"handler":"charge","reservation_id":%q,"lease_seconds":1}`, owner, first)).want(t, 201, "reserved")
	post("dispatch", fmt.Sprintf(`{"reservation_id":%q}`, first)).want(t, 200, "dispatched")
	post("renew", fmt.Sprintf(`{"reservation_id":%q,"lease_seconds":1}`, first)).want(t, 200, "renewed")
	doubt := post("reserve", fmt.Sprintf(`{"owner":%q,"handler":"charge","wait_seconds":60}`, owner)) // until the lease passes
	doubt.want(t, 409, "in_doubt")
	takeovers, err := json.Marshal(doubt.body["takeovers"])
	if err != nil {
		t.Fatal(err)
	}
	post("reserve", fmt.Sprintf(`{"owner":%q,"handler":"charge","reservation_id":%q,"takeovers":%s}`, owner, second, takeovers)).want(t, 201, "reserved")
	post("record", fmt.Sprintf(`{"reservation_id":%q,"response":{"body":"first"}}`, first)).want(t, 201, "recorded")
	for range 2 {
		post("record", fmt.Sprintf(`{"reservation_id":%q,"response":{"body":"second"}}`, second)).want(t, 409, "already_recorded")
	}
	send("GET", key+"/replay", "", "").want(t, 200, "recorded")
	post("release", fmt.Sprintf(`{"reservation_id":%q}`, first)).want(t, 409, "already_recorded")
	send("POST", p.url+"/v1/batch/reserve", "", fmt.Sprintf(`{"items":[{"task_id":%q,"attempt":0,"owner":%q},{}]}`, task, owner))
	send("GET", p.url+"/no/such/"+task, "", "")

	left := p.task(task+"-left") + "/reserve"
	send("POST", left, "", fmt.Sprintf(`{"owner":%q,"handler":"mail","lease_seconds":1}`, owner)).want(t, 201, "reserved")
	send("POST", left, "", fmt.Sprintf(`{"owner":%q,"handler":"mail","wait_seconds":60}`, owner)).want(t, 409, "in_doubt")
}

func measured(t *testing.T, databaseURL string, env ...string) *program {
	t.Helper()
	return start(t, append(env, "IDEMSTORE_DATABASE_URL="+databaseURL), "--metrics-listen", "127.0.0.1:0")
}

// What happened is what is counted.
func TestAnIncidentIsCounted(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, databaseURL string) {
		p := measured(t, databaseURL)
		task, owner := uuid.NewString(), "owner-"+uuid.NewString()
		p.incident(task, owner)
		all, text := p.scrape()
		for name, want := range map[string]map[string]string{
			"idemstore_dispatch_total":          {`handler="charge",outcome="dispatched"`: "1"},
			"idemstore_renew_total":             {`handler="charge",outcome="renewed"`: "1"},
			"idemstore_record_total":            {`handler="charge",outcome="recorded"`: "1", `handler="charge",outcome="already_recorded"`: "2"},
			"idemstore_replay_total":            {`handler="charge",outcome="recorded"`: "1"},
			"idemstore_release_total":           {`handler="charge",outcome="already_recorded"`: "1"},
			"idemstore_reserve_total":           {`handler="charge",outcome="reserved"`: "2", `handler="charge",outcome="in_doubt"`: "1", `handler="charge",outcome="recorded"`: "1", `handler="none",outcome="invalid_request"`: "1"},
			"idemstore_repeated_refusals_total": {`handler="charge",outcome="already_recorded",verb="record"`: "1"},
			"idemstore_duplicate_records_total": {`handler="charge",same_response="false",verb="record"`: "1"},
			"idemstore_late_records_total":      {`handler="charge"`: "1"},
			"idemstore_takeovers_total":         {`handler="charge"`: "1"},
			"idemstore_doubts_found_total":      {`handler="charge"`: "1"},
			"idemstore_events_total":            {`kind="duplicate_record"`: "1", `kind="taken_over"`: "1", `kind="recorded_late"`: "1", `kind="found_in_doubt"`: "2", `kind="replayed"`: "2"},
			"idemstore_ready":                   {"": "1"},
			"idemstore_in_doubt":                {"": "1"},
			"idemstore_open":                    {"": "0"},
			"idemstore_standing_errors_total":   {"": "0"},
			"idemstore_queue_commands":          {"": "0"},
			"idemstore_http_request_duration_seconds": {
				`_countmethod="POST",route="/v1/batch/reserve",status="2xx"`: "1", `_countmethod="GET",route="unmatched",status="4xx"`: "1",
			},
		} {
			for series, value := range want {
				if f := all[name]; f == nil || f.series[series] != value {
					t.Errorf("%s{%s}: want %s of %+v", name, series, value, f)
				}
			}
		}
		if age, err := strconv.ParseFloat(all["idemstore_oldest_in_doubt_seconds"].series[""], 64); err != nil || age <= 0 || age > patience.Seconds() {
			t.Errorf("the key in doubt is %g s old (%v)", age, err)
		}
		for _, secret := range []string{task, owner} {
			if strings.Contains(text, secret) {
				t.Errorf("%s of a caller is a label", secret)
			}
		}
	})
}

// What a running service exports is what docs/metrics.md tells of, and promtool finds no fault with the names.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	p := measured(t, engines["Postgres"](t))
	p.incident(uuid.NewString(), "w")
	all, text := p.scrape()
	rows := regexp.MustCompile("(?m)^\\| `(idemstore_[a-z_]+)` \\| ([a-z]+) \\| (.*?) ?\\| .+ \\|$").FindAllStringSubmatch(readFile(t, "../../docs/metrics.md"), -1)
	told := map[string]bool{}
	for _, row := range rows {
		name := row[1]
		if told[name] {
			t.Errorf("docs/metrics.md has %s twice", name)
		}
		told[name] = true
		f := all[name]
		if f == nil {
			t.Errorf("docs/metrics.md has %s, which is not exported", name)
			continue
		}
		var labels []string
		for label := range strings.SplitSeq(row[3], ",") {
			if label = strings.Trim(label, " `"); label != "" {
				labels = append(labels, label)
			}
		}
		slices.Sort(labels)
		if have := slices.Sorted(maps.Keys(f.labels)); row[2] != f.kind || !slices.Equal(labels, have) {
			t.Errorf("%s is a %s with the labels %v; docs/metrics.md has a %s with %v", name, f.kind, have, row[2], labels)
		}
	}
	var ours []string
	for name := range all {
		if strings.HasPrefix(name, "idemstore_") {
			ours = append(ours, name)
			if !told[name] {
				t.Errorf("docs/metrics.md does not tell of %s", name)
			}
		}
	}
	if len(ours) < 30 {
		t.Errorf("only %d metrics are exported: %v", len(ours), ours)
	}
	var own strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, "idemstore_") {
			own.WriteString(line)
		}
	}
	promtool(t, own.String(), "check", "metrics")
}

var metricName = regexp.MustCompile(`\b(?:idemstore|go|process)_[a-z0-9_]+`)

// exported fails the test for each metric in an expression that a running service does not export.
func exported(t *testing.T, all map[string]*family, where, expr string) {
	t.Helper()
	names := metricName.FindAllString(expr, -1)
	if len(names) == 0 {
		t.Errorf("%s asks for nothing: %s", where, expr)
	}
	for _, name := range names {
		if all[name] != nil && all[name].kind != "histogram" {
			continue
		}
		base := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if f := all[base]; base == name || f == nil || f.kind != "histogram" {
			t.Errorf("%s asks for %s, which is not exported", where, name)
		}
	}
}

// panel is what a panel of a dashboard must have.
type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ Type, UID string }
	GridPos    struct{ H, W, X, Y int }
	Targets    []struct {
		RefID, Expr string
		Datasource  struct{ Type, UID string }
	}
}

// The dashboard is whole, and each of its queries is one that Prometheus understands and that has an answer.
func TestDashboard(t *testing.T) {
	t.Parallel()
	var d struct {
		UID, Title string
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []panel
	}
	if err := json.Unmarshal([]byte(readFile(t, dashboard)), &d); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
	}
	if d.UID == "" || d.Title == "" || variables["datasource"] != "datasource" {
		t.Errorf("uid %q, title %q, variables %v", d.UID, d.Title, variables)
	}
	p := measured(t, engines["Postgres"](t))
	p.incident(uuid.NewString(), "w")
	all, _ := p.scrape()
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			exported(t, all, "the variable "+v.Name, v.Query)
		}
	}
	ids, titles, cells := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for _, panel := range d.Panels {
		if ids[panel.ID] || panel.ID == 0 || titles[panel.Title] || panel.Title == "" {
			t.Errorf("the panel %d %q has no id or title of its own", panel.ID, panel.Title)
		}
		ids[panel.ID], titles[panel.Title] = true, true
		for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
			for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
				if cells[[2]int{x, y}] != "" || x >= 24 {
					t.Errorf("%s lies over %q or beyond the edge", panel.Title, cells[[2]int{x, y}])
				}
				cells[[2]int{x, y}] = panel.Title
			}
		}
		if panel.Type == "row" {
			continue
		}
		if len(panel.Targets) == 0 || panel.Datasource.UID != "${datasource}" {
			t.Errorf("%s has %d queries of the data source %q", panel.Title, len(panel.Targets), panel.Datasource.UID)
		}
		for _, target := range panel.Targets {
			if target.Datasource.UID != "${datasource}" || target.RefID == "" {
				t.Errorf("%s: the query %+v has another data source, or no name", panel.Title, target)
			}
			exported(t, all, panel.Title, target.Expr)
			expr := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$handler", ".*").Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s uses a variable that is not there: %s", panel.Title, expr)
			}
			fmt.Fprintf(&rules, "  - record: panel_%d_%s\n    expr: %q\n", panel.ID, target.RefID, expr)
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "rules", file)
}

// Each alert is one that Prometheus understands, asks for what is exported, and fires when it should and only then.
func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool(t, "", "check", "rules", alerts)
	promtool(t, "", "test", "rules", strings.TrimSuffix(alerts, ".yaml")+"_test.yaml")
	p := measured(t, engines["Postgres"](t))
	p.incident(uuid.NewString(), "w")
	all, _ := p.scrape()
	text, tests := readFile(t, alerts), readFile(t, strings.TrimSuffix(alerts, ".yaml")+"_test.yaml")
	exported(t, all, "alerts.yaml", text)
	names := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(text, -1)
	if len(names) < 6 {
		t.Errorf("only %d alerts", len(names))
	}
	for _, name := range names {
		fires := regexp.MustCompile(`alertname: ` + name[1] + `(\s+|, )exp_alerts:`)
		if !fires.MatchString(tests) || !strings.Contains(tests, "alertname: "+name[1]+" }") {
			t.Errorf("alerts_test.yaml must show %s fire, and not fire", name[1])
		}
	}
}

// promtool runs Prometheus' own program, which must find no fault.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		if program, err = filepath.Abs("../../bin/promtool"); err == nil {
			_, err = os.Stat(program)
		}
	}
	if err != nil {
		t.Fatalf("promtool is neither in PATH nor in bin/; scripts/install-test-deps.sh puts it there (%v)", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
