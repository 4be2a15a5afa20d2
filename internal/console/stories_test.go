package console_test

import (
	"html"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/console"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/stories"
)

// What the person on call is told of a task is what the command line tells too.
func TestStories(t *testing.T) {
	t.Parallel()
	for _, story := range stories.All {
		t.Run(story.Name, func(t *testing.T) {
			t.Parallel()
			scene, err := stories.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(scene.Close)
			story.Tell(scene)
			pages := console.New(console.Config{
				Reader: scene.Backend, Keeper: scene.Keeper, Tally: console.NewTally(scene.Keeper, time.Now), Tokens: tokens{&scene.Tokens},
				Now: time.Now, MaxBodyBytes: 1 << 20, Export: scene.Server.ExportEvents, Told: server.Tell,
			})
			answer := httptest.NewRecorder()
			pages.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", taskPath(scene.Key), nil))
			var have, tones []string
			for _, m := range regexp.MustCompile(`<p class="note ([a-z]*)">([^<]+)</p>`).FindAllStringSubmatch(answer.Body.String(), -1) {
				tones, have = append(tones, m[1]), append(have, stories.Timeless(html.UnescapeString(m[2])))
			}
			if !slices.Equal(have, story.Verdict) {
				t.Errorf("told\n  %s\nwant\n  %s\n%s", strings.Join(have, "\n  "), strings.Join(story.Verdict, "\n  "), answer.Body)
			}
			if story.Well != slices.Contains(tones, "done") {
				t.Errorf("it is told in the tones %q", tones)
			}
		})
	}
}
