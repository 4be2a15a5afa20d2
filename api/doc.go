// Package api is the HTTP API in Go, generated from openapi.yaml: the models of what goes over the wire, the interface
// that a server implements on chi, and a client.
//
// Nothing in *.gen.go is edited by hand. overlay.yaml says where Go needs a word of its own, so that the contract stays
// free of Go:
//
//   - Timestamps and UUIDs are plain strings, so that the server alone decides how they are written and checked.
//   - Where JSON has a choice of types (the headers of an offered response, the body of a batch's result) there is a
//     json.RawMessage and no union type, so that no model has methods of its own for JSON.
//   - Optional members are pointers. So are the required members of requests whose zero is a value like any other, to
//     tell it from a missing one.
//   - Optional members that may be present and empty say omitzero instead of omitempty: the two differ in
//     github.com/go-json-experiment/json, which takes "" and [] for empty even behind a pointer.
//
// The models check nothing. An unknown member, an enum's value or a number out of range is for the server to refuse.
package api
