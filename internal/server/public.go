package server

import (
	"context"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/idemstore/idemstore"
	"github.com/idemstore/idemstore/api"
)

// GetHealth implements api.ServerInterface: the process lives.
func (s *Server) GetHealth(w http.ResponseWriter, _ *http.Request) {
	sendJSON(w, http.StatusOK, "application/json", encode(&api.Health{Status: api.HealthStatusOk}))
}

// readyTime bounds the look at the store.
const readyTime = 3 * time.Second

// GetReadiness implements api.ServerInterface: it can serve.
func (s *Server) GetReadiness(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		s.unready(w, r, "The service is shutting down.")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTime)
	defer cancel()
	if err := s.keeper.Ready(ctx); err != nil {
		requestOf(r.Context()).err = err
		s.unready(w, r, "The store cannot serve now; the log says why.")
		return
	}
	sendJSON(w, http.StatusOK, "application/json", encode(&api.Readiness{Status: api.ReadinessStatusReady}))
}

func (s *Server) unready(w http.ResponseWriter, r *http.Request, detail string) {
	p := newProblem(requestOf(r.Context()), codeUnavailable, detail)
	p.RetryAfterSeconds = retryAfter(0)
	s.send(w, r, answer{status: p.Status, code: codeUnavailable, body: p})
}

// GetOpenAPI implements api.ServerInterface.
func (s *Server) GetOpenAPI(w http.ResponseWriter, _ *http.Request) {
	sendJSON(w, http.StatusOK, "application/yaml", idemstore.OpenAPI)
}

// GetProblem implements api.ServerInterface: the page that a problem's type leads to.
func (s *Server) GetProblem(w http.ResponseWriter, r *http.Request, slug string) {
	c := code(strings.ReplaceAll(slug, "-", "_"))
	p, ok := pages[c]
	if !ok || problemType(c) != "/problems/"+slug {
		s.problem(w, r, codeNoSuchRoute, "There is no problem of this name.")
		return
	}
	var out strings.Builder
	_ = problemPage.Execute(&out, map[string]any{
		"Code": c, "Status": p.status, "Text": http.StatusText(p.status), "Title": p.title, "Means": p.means, "Do": p.todo,
	}) // into memory, from a fixed template: cannot fail
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	sendJSON(w, http.StatusOK, "text/html; charset=utf-8", []byte(out.String()))
}

var problemPage = template.Must(template.New("problem").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Code}} · idemstore</title>
<style>
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }
code { font-size: 1.1em }
</style>
<p><code>{{.Code}}</code> · {{.Status}} {{.Text}}</p>
<h1>{{.Title}}</h1>
<h2>What happened</h2>
<p>{{.Means}}</p>
<h2>What to do</h2>
<p>{{.Do}}</p>
<p><a href="/openapi.yaml">The whole API</a></p>
</html>
`))
