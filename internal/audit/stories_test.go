package audit

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/internal/stories"
)

// What the person on call is told of a task is what the console tells too.
func TestStories(t *testing.T) {
	t.Parallel()
	for _, story := range stories.All {
		t.Run(story.Name, func(t *testing.T) {
			t.Parallel()
			scene, err := stories.Open(t.Context())
			wantOK(t, err)
			t.Cleanup(scene.Close)
			story.Tell(scene)
			f := newFake(t)
			f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", scene.Now(r.Context()).UTC().Format(http.TimeFormat))
				scene.Server.ServeHTTP(w, r)
			})
			s := of(t, f)
			wantOK(t, s.Task(t.Context(), scene.Key.TaskID))
			_, rest, _ := strings.Cut(s.out.String(), "EXPIRES\n")
			text, _, _ := strings.Cut(rest, "\nTimeline")
			if len(rest) == 0 {
				text, _, _ = strings.Cut(s.out.String(), "\nTimeline")
			}
			var have []string
			for line := range strings.Lines(text) {
				line = stories.Timeless(strings.TrimSpace(line))
				line, _, _ = strings.Cut(line, " What was offered is [") // where it is shown,
				if text, _, found := strings.Cut(line, ": idemstore audit resolve "+scene.Key.TaskID+" "); found {
					line = text + "." // and what to type,
				}
				if strings.Contains(line, "happened") || strings.HasSuffix(line, ".") { // beside the tables
					have = append(have, line)
				}
			}
			want := story.Verdict
			if story.FromOutside != nil {
				want = story.FromOutside
			}
			if !slices.Equal(have, want) {
				t.Errorf("told\n  %s\nwant\n  %s\n%s", strings.Join(have, "\n  "), strings.Join(want, "\n  "), s.out.String())
			}
		})
	}
}
