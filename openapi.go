// Package idemstore holds what the service publishes about itself.
package idemstore

import _ "embed"

// OpenAPI is the contract of the HTTP API, openapi.yaml, as the service serves it.
//
//go:embed openapi.yaml
var OpenAPI []byte
