package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
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
			return client.Response{}, failed(t, err)
		}
		generation = o.Generation
	}
	status, content, err := g.call(ctx, http.MethodGet, at+"?alt=media&generation="+url.QueryEscape(generation), "", nil)
	return client.Response{Status: status, Header: http.Header{"X-Goog-Generation": {generation}}, Body: content}, failed(t, err)
}

// write creates an object, or replaces the generation that the task names. A write that was made before fails its
// precondition now, and is known by the task's id beside the object. A name that ends in / is completed by that id.
func (g gcs) write(ctx context.Context, t *task) (client.Response, error) {
	bucket, name, generation := t.text("bucket"), t.text("object"), t.text("generation")
	if strings.HasSuffix(name, "/") {
		name += t.ID
	}
	if generation == "" {
		generation = "0" // there must be none yet
	}
	contentType, body, err := upload(object{Name: name, Metadata: map[string]string{"task": t.ID}}, t.text("content"))
	if err != nil {
		return client.Response{}, failed(t, err)
	}
	to := fmt.Sprintf("%s/upload/storage/v1/b/%s/o?uploadType=multipart&ifGenerationMatch=%s", g.url, url.PathEscape(bucket), url.QueryEscape(generation))
	status, answer, err := g.call(ctx, http.MethodPost, to, contentType, body)
	if err == nil && status == http.StatusPreconditionFailed {
		var there object
		if there, err = g.stat(ctx, g.path(bucket, name)); err == nil && there.Metadata["task"] == t.ID {
			status = http.StatusOK
			answer, err = json.Marshal(there)
		}
	}
	return client.Response{Status: status, Body: answer}, failed(t, err) // trying again cannot write twice
}

func (g gcs) stat(ctx context.Context, at string) (object, error) {
	var o object
	status, answer, err := g.call(ctx, http.MethodGet, at, "", nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s answered %d", at, status)
	}
	if err == nil {
		err = json.Unmarshal(answer, &o)
	}
	return o, err
}

// call is one request. An answer that asks to try again later is an error.
func (g gcs) call(ctx context.Context, method, to, contentType string, body []byte) (int, []byte, error) {
	header := http.Header{"Authorization": {"Bearer " + os.Getenv("STORAGE_TOKEN")}}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	status, answer, err := send(ctx, method, to, header, body)
	if err == nil && (status >= 500 || status == http.StatusTooManyRequests) {
		err = fmt.Errorf("%s answered %d", to, status)
	}
	return status, answer, err
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
