package store

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/idemstore/idemstore/internal/idem"
)

// The columns that the store packs and unpacks itself. What is unpacked without a fault is packed and unpacked to the same.

func FuzzHead(f *testing.F) {
	f.Fuzz(func(t *testing.T, head []byte) {
		if len(head) == 0 {
			return // which no column is
		}
		r := idem.Response{Status: 200}
		if decodeHead(&r, head) != nil {
			return
		}
		again := idem.Response{Status: 200}
		if err := decodeHead(&again, encodeHead(&r)); err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}

// FuzzResponse packs a response as it is offered, and unpacks it.
func FuzzResponse(f *testing.F) {
	f.Fuzz(func(t *testing.T, name, value, name2, value2, digest string, size int64, omitted bool, body []byte) {
		r := &idem.Response{Status: 201, HasBody: !omitted, Headers: []idem.Header{{name, value}, {name2, value2}}}
		if omitted {
			r.Omitted, r.BodySHA256, r.BodySize = true, digest, max(size, 0)
		} else {
			r.Body = append([]byte{}, body...)
		}
		status, head, kept := columnsOf(r)
		again, err := responseOf(status, head, kept, false)
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}

func FuzzMore(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte, recorded bool) {
		e := idem.Entry{Key: idem.Key{TaskID: "t"}, State: idem.Released}
		if recorded {
			e.State = idem.Recorded
		}
		again := e
		if decodeMore(&e, text) != nil {
			return
		}
		column, err := encodeMore(&e)
		if err != nil {
			return // a time past the year 9999, which no database gave
		}
		var packed []byte
		if column != nil {
			packed = []byte(*column)
		}
		if err := decodeMore(&again, packed); err != nil {
			t.Fatalf("%q: %v", packed, err)
		}
		if second, err := encodeMore(&again); err != nil || (second == nil) != (column == nil) || second != nil && *second != *column {
			t.Fatalf("%q was packed again as %v, %v", packed, second, err)
		}
	})
}

func FuzzDetail(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte) {
		detail, err := decodeDetail(text)
		if err != nil {
			return
		}
		packed, err := encodeDetail(detail)
		if err != nil || packed != nil && !json.Valid([]byte(*packed)) {
			t.Fatalf("%v was packed as %v, %v", detail, packed, err)
		}
		if packed == nil {
			return
		}
		if again, err := decodeDetail([]byte(*packed)); err != nil || !reflect.DeepEqual(detail, again) {
			t.Fatalf("%v became %v, %v", detail, again, err)
		}
	})
}
