package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/idemstore/idemstore/client"
)

// gcs is Google Cloud Storage's JSON API. Its preconditions make writes idempotent, so no store is needed.
type gcs struct{ url string }

// object is what the API tells of an object.
type object struct {
	Name       string            `json:"name"`
	Generation string            `json:"generation"`
	Metadata   map[string]string `json:"metadata"`
}

func (g gcs) path(bucket, name string) string {
	return fmt.Sprintf("%s/storage/v1/b/%s/o/%s", g.url, url.PathEscape(bucket), url.PathEscape(name))
}

// read reads one generation of an object: the one that the task names, or else the one that is there now, which it tells.
func (g gcs) read(ctx context.Context, t *task) (client.Response, error) {
	at, generation := g.path(t.text("bucket"), t.text("object")), t.text("generation")
	if generation == "" {
		o, err := g.stat(ctx, at)
		if err != nil {
			return client.Response{}, err
		}
		generation = o.Generation
	}
	response, err := g.call(ctx, http.MethodGet, at+"?alt=media&generation="+url.QueryEscape(generation), "", nil)
	response.Header = http.Header{"X-Goog-Generation": {generation}}
	return response, err
}

// write creates an object, or replaces the generation that the task names. A write that was made before fails its
// precondition now, and is known by the task's id beside the object, which those who replace it hand on. A name that ends in /
// is completed by that id.
func (g gcs) write(ctx context.Context, t *task) (client.Response, error) {
	bucket, name, generation := t.text("bucket"), t.text("object"), t.text("generation")
	if strings.HasSuffix(name, "/") {
		name += t.ID
	}
	at, writers := g.path(bucket, name), ""
	if generation == "" {
		generation = "0" // there must be none yet
	} else if before, err := g.stat(ctx, at); err == nil && before.Generation == generation {
		writers = before.Metadata["tasks"]
	} else if err != nil && !errors.Is(err, errNoObject) {
		return client.Response{}, err
	}
	contentType, body, err := upload(object{Name: name, Metadata: map[string]string{"tasks": handOn(writers, t.ID)}}, t.text("content"))
	if err != nil {
		return client.Response{}, err
	}
	to := fmt.Sprintf("%s/upload/storage/v1/b/%s/o?uploadType=multipart&ifGenerationMatch=%s", g.url, url.PathEscape(bucket), url.QueryEscape(generation))
	response, err := g.call(ctx, http.MethodPost, to, contentType, body)
	if err != nil || response.Status != http.StatusPreconditionFailed {
		return client.Response{Status: response.Status, Body: response.Body}, err
	}
	there, err := g.stat(ctx, at)
	if err != nil {
		return client.Response{}, err // trying again cannot write twice
	}
	if slices.Contains(strings.Fields(there.Metadata["tasks"]), t.ID) {
		response.Status = http.StatusOK
		response.Body, err = json.Marshal(there)
	}
	return client.Response{Status: response.Status, Body: response.Body}, err
}

// handOn adds a task to those that have written an object, of which the last hundred are kept.
func handOn(writers, id string) string {
	all := append(strings.Fields(writers), id)
	return strings.Join(all[max(0, len(all)-100):], " ")
}

var errNoObject = errors.New("no such object")

func (g gcs) stat(ctx context.Context, at string) (object, error) {
	var o object
	answer, err := g.call(ctx, http.MethodGet, at, "", nil)
	switch {
	case err != nil:
		return o, err
	case answer.Status == http.StatusNotFound:
		return o, fmt.Errorf("%s: %w", at, errNoObject)
	case answer.Status != http.StatusOK:
		return o, fmt.Errorf("%s answered %d", at, answer.Status)
	}
	err = json.Unmarshal(answer.Body, &o)
	return o, err
}

// call is one request. An answer that asks to try again later is an error.
func (g gcs) call(ctx context.Context, method, to, contentType string, body []byte) (client.Response, error) {
	header := http.Header{"Authorization": {"Bearer " + os.Getenv("STORAGE_TOKEN")}}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	answer, err := send(ctx, method, to, header, body)
	if err == nil && (answer.Status >= 500 || answer.Status == http.StatusTooManyRequests) {
		err = fmt.Errorf("%s answered %d", to, answer.Status)
	}
	return answer, err
}

// upload is an object and its content in one body.
func upload(o object, content string) (contentType string, body []byte, err error) {
	about, err := json.Marshal(o)
	if err != nil {
		return "", nil, err
	}
	var out bytes.Buffer
	parts := multipart.NewWriter(&out)
	for _, part := range []struct{ contentType, text string }{{"application/json", string(about)}, {"text/plain", content}} {
		w, err := parts.CreatePart(textproto.MIMEHeader{"Content-Type": {part.contentType}})
		if err != nil {
			return "", nil, err
		}
		if _, err := w.Write([]byte(part.text)); err != nil {
			return "", nil, err
		}
	}
	if err := parts.Close(); err != nil {
		return "", nil, err
	}
	return "multipart/related; boundary=" + parts.Boundary(), out.Bytes(), nil
}
