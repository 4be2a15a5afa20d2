package main

import (
	"time"

	"github.com/idemstore/idemstore/internal/console"
	"github.com/idemstore/idemstore/internal/server"
)

// mountConsole serves the operators' pages beside the API.
func (v *service) mountConsole(tally *console.Tally) {
	v.server.Mount(console.Prefix, console.New(console.Config{
		Reader: v.backend, Keeper: tally, Tally: tally, Tokens: consoleTokens{v.tokens}, Now: time.Now,
		MaxBodyBytes: v.config.server.MaxBodyBytes, Export: v.server.ExportEvents, Told: server.Tell,
		Warn: func(requestID, address, text string) {
			v.log.Warn().Str("request_id", requestID).Str("address", address).Msg(text)
		},
	}))
}

// consoleTokens shows the console the tokens of the API.
type consoleTokens struct{ *server.Tokens }

// Check implements console.Tokens.
func (t consoleTokens) Check(secret string) (console.Caller, bool) {
	return caller(t.Tokens.Check(secret))
}

// Named implements console.Tokens.
func (t consoleTokens) Named(name string) (console.Caller, bool) { return caller(t.Tokens.Named(name)) }

func caller(b *server.Bearer, ok bool) (console.Caller, bool) {
	if !ok {
		return console.Caller{}, false
	}
	return console.Caller{
		Name: b.Name, Auditor: b.May(server.RoleAuditor), Operator: b.May(server.RoleOperator), Key: b.Key("console"),
	}, true
}
