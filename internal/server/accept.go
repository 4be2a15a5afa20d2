package server

import (
	"mime"
	"strconv"
	"strings"
)

// preferred is which of the types that there are an Accept header likes best: of those that it likes the same, the one that it names
// most exactly, then the first. The first, too, where it takes none of them.
func preferred(accept, offered []string) string {
	best, bestQ, bestExact := offered[0], 0.0, 0
	for _, kind := range offered {
		if q, exact := liking(accept, kind); q > bestQ || q == bestQ && q > 0 && exact > bestExact {
			best, bestQ, bestExact = kind, q, exact
		}
	}
	return best
}

// liking is the weight of the media range that names a type most exactly, and how exactly: */*, type/*, type/subtype.
func liking(accept []string, kind string) (q float64, exact int) {
	family, _, _ := strings.Cut(kind, "/")
	for _, line := range strings.Split(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(line)
		if err != nil {
			continue
		}
		how := 0
		switch media {
		case "*/*":
			how = 1
		case family + "/*":
			how = 2
		case kind:
			how = 3
		}
		if how > exact {
			q, exact = weight(params), how
		}
	}
	return q, exact
}

// weight is the q of a media range: 1 where it has none, 0 where it cannot be read.
func weight(params map[string]string) float64 {
	text, ok := params["q"]
	if !ok {
		return 1
	}
	if q, err := strconv.ParseFloat(text, 64); err == nil && q >= 0 && q <= 1 {
		return q
	}
	return 0
}
