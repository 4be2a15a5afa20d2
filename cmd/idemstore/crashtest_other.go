//go:build !unix

package main

import "errors"

type crashtestCmd struct {
	Command []string `arg:"" help:"The command that starts the worker."`
}

// Run implements the subcommand.
func (*crashtestCmd) Run(*env) error {
	return usageError{errors.New("crashtest kills process groups, which this system does not have; run it on Linux or another Unix")}
}

func crashtestVars() map[string]string { return nil }
