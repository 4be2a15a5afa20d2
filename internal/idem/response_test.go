package idem

import (
	"slices"
	"testing"
)

// Whatever can be told apart in a response makes another response, with another digest.
func TestResponsesDiffer(t *testing.T) {
	t.Parallel()
	h := func(lines ...Header) []Header { return lines }
	responses := []*Response{
		{Status: 200},
		{Status: 201},
		{Status: 200, HasBody: true},
		{Status: 200, HasBody: true, Body: []byte("ab")},
		{Status: 200, HasBody: true, Body: []byte("ab\x00")},
		{Status: 200, Headers: h(Header{"ab", ""})},
		{Status: 200, Headers: h(Header{"a", "b"})},
		{Status: 200, Headers: h(Header{"", "ab"})},
		{Status: 200, Headers: h(Header{"A", "b"})},
		{Status: 200, Headers: h(Header{"a", ""}, Header{"b", ""})},
		{Status: 200, Headers: h(Header{"b", ""}, Header{"a", ""})},
		{Status: 200, Headers: h(Header{"a", "b"}, Header{"a", "b"})},
		{Status: 200, Headers: h(Header{"a", "b"}), HasBody: true, Body: []byte("a")},
		{Status: 200, Headers: h(Header{"a", "ba"}), HasBody: true},
		{Status: 200, Omitted: true},
		{Status: 200, Omitted: true, BodySHA256: "ab"},
		{Status: 200, Omitted: true, BodySize: 1},
		{Status: 200, Omitted: true, BodySHA256: "ab", BodySize: 1},
		{Status: 200, HasBody: true, Body: []byte("ab"), BodySize: 1},
	}
	digests := []string{(*Response)(nil).digest()}
	for i, r := range responses {
		for j, o := range responses {
			if r.Equal(o) != (i == j) {
				t.Errorf("%d and %d: equal %t", i, j, r.Equal(o))
			}
		}
		if d := r.digest(); slices.Contains(digests, d) || d == "" {
			t.Errorf("the digest of %d is that of another: %q", i, d)
		}
		digests = append(digests, r.digest())
	}
}

// How a response came into memory makes no difference.
func TestResponsesAreTheSame(t *testing.T) {
	t.Parallel()
	a := &Response{Status: 200, HasBody: true}
	b := &Response{Status: 200, HasBody: true, Body: []byte{}, Headers: []Header{}}
	if !a.Equal(b) || !b.Equal(a) || a.digest() != b.digest() {
		t.Error("nil and empty are told apart")
	}
}
