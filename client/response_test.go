package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/client"
)

// recordAndReplay has an effect give a response, and returns what Once returned for it and what is replayed of it.
func recordAndReplay(t *testing.T, response client.Response) (first, second client.Response) {
	t.Helper()
	s, k := start(t), key()
	c := connect(t, s)
	first, err := c.Once(t.Context(), k, func(context.Context, client.Grant) (client.Response, error) { return response, nil })
	if err != nil {
		t.Fatal(err)
	}
	if second, err = c.Once(t.Context(), k, never(t)); err != nil {
		t.Fatal(err)
	}
	return first, second
}

func TestBodyTooLargeAndTooManyHeaders(t *testing.T) {
	t.Parallel()
	header := make(http.Header)
	for i := range 101 {
		header.Add("X-Many", strconv.Itoa(i))
	}
	_, kept := recordAndReplay(t, client.Response{Status: 201, Header: header, Body: bytes.Repeat([]byte("x"), 5000)})
	if kept.Status != 201 || len(kept.Header) != 0 || kept.Body != nil || kept.Omitted == nil || kept.Omitted.Size != 5000 {
		t.Fatalf("%+v", kept)
	}
}

// What happened is recorded, whatever the upstream calls it.
func TestStatusThatIsNone(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{0: 200, 42: 502, -1: 502, 600: 502, 999: 502, 599: 599, 100: 100} {
		first, second := recordAndReplay(t, client.Response{Status: status, Body: []byte("done")})
		told := second.Header.Get("Upstream-Status")
		if first.Status != want || second.Status != want || string(second.Body) != "done" || told != first.Header.Get("Upstream-Status") {
			t.Errorf("%d: %+v, replayed %+v", status, first, second)
		}
		if (want == 502) != (told == strconv.Itoa(status)) {
			t.Errorf("%d is told as %q", status, told)
		}
	}
}

func TestHeaderInLatin1(t *testing.T) {
	t.Parallel()
	_, second := recordAndReplay(t, client.Response{Header: http.Header{"X-Old": {"caf\xe9"}, "X-New": {"café"}}})
	if second.Header.Get("X-Old") != "café" || second.Header.Get("X-New") != "café" {
		t.Errorf("%q", second.Header)
	}
}

func TestFromHTTP(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"small": 10, "largest": 16 << 20, "larger": 16<<20 + 1, "large": 40 << 20} {
		body := strings.Repeat("x", size)
		response, err := client.FromHTTP(&http.Response{StatusCode: 201, Body: io.NopCloser(strings.NewReader(body))})
		if err != nil || response.Status != 201 {
			t.Fatalf("%s: %v", name, err)
		}
		if size <= 16<<20 {
			if string(response.Body) != body || response.Omitted != nil {
				t.Errorf("%s: %d bytes", name, len(response.Body))
			}
			continue
		}
		sum := sha256.Sum256([]byte(body))
		if response.Body != nil || response.Omitted == nil || response.Omitted.Size != int64(size) || response.Omitted.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: %+v", name, response.Omitted)
		}
	}
	broken := io.MultiReader(strings.NewReader(strings.Repeat("x", 17<<20)), failing{})
	for _, body := range []io.Reader{failing{}, broken} {
		_, err := client.FromHTTP(&http.Response{StatusCode: 201, Body: io.NopCloser(body)})
		if err == nil || client.NothingHappened(err) {
			t.Errorf("an answer that breaks off: %v", err)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
