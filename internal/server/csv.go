package server

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/idemstore/idemstore/internal/idem"
)

// csvHeader names the columns of csvLine.
var csvHeader = []byte("id,at,kind,task_id,attempt,fence,handler,actor_owner,actor_token,request_id,detail," +
	"response_status,response_headers,response_body,response_body_base64,response_body_omitted,response_body_sha256,response_body_size\r\n")

// csvLine is an event as a row of RFC 4180. It is written by hand because encoding/csv, told to end lines with CRLF, changes those
// inside cells too.
func csvLine(buf []byte, e *idem.Event) []byte {
	for _, cell := range []string{
		e.ID, stamp(e.At), string(e.Kind), e.TaskID, strconv.Itoa(int(e.Attempt)), strconv.FormatInt(e.Fence, 10), e.Handler,
		e.Owner, e.Token, e.RequestID, string(detailOf(e)),
	} {
		buf = append(csvCell(buf, cell), ',')
	}
	r := e.Response
	if r == nil {
		return append(buf, ",,,,,,\r\n"...)
	}
	var text, base, omitted, digest, size string
	switch {
	case r.Omitted:
		omitted, digest, size = "true", r.BodySHA256, strconv.FormatInt(r.BodySize, 10)
	case utf8.Valid(r.Body) && bytes.IndexByte(r.Body, 0) < 0:
		text = string(r.Body)
	default:
		base = base64.StdEncoding.EncodeToString(r.Body)
	}
	for _, cell := range []string{strconv.Itoa(r.Status), string(encode(response(r, false).Headers)), text, base, omitted, digest} {
		buf = append(csvCell(buf, cell), ',')
	}
	return append(csvCell(buf, size), "\r\n"...)
}

// csvCell adds a cell. One that a spreadsheet would take for a formula gets an apostrophe, which says that it is text.
func csvCell(buf []byte, cell string) []byte {
	if cell != "" && strings.IndexByte("=+-@\t\r", cell[0]) >= 0 {
		cell = "'" + cell
	}
	if !strings.ContainsAny(cell, "\",\r\n") {
		return append(buf, cell...)
	}
	buf = append(buf, '"')
	buf = append(buf, strings.ReplaceAll(cell, `"`, `""`)...)
	return append(buf, '"')
}
