package pgtest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// oldest is the first major version that the service supports.
const oldest = 14

// programDirs are where packages put the server programs besides PATH: Debian's, then Red Hat's, then Homebrew's.
var programDirs = []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin"}

// findPrograms returns the directory of the newest server programs on this machine.
func findPrograms(ctx context.Context) (string, error) {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real // beside it are the others, too
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range programDirs {
		found, _ := filepath.Glob(pattern)
		dirs = append(dirs, found...)
	}
	return newest(dirs, func(dir string) (string, error) {
		if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
			return "", err
		}
		out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
		return string(out), err
	})
}

var versionPattern = regexp.MustCompile(`PostgreSQL\) (\d+)`)

// newest picks among directories by what their program says about its version.
func newest(dirs []string, version func(dir string) (string, error)) (string, error) {
	var best int
	var bestDir string
	var rejected []string
	for _, dir := range dirs {
		text, err := version(dir)
		if err != nil {
			rejected = append(rejected, fmt.Sprintf("%s (%v)", dir, err))
			continue
		}
		match := versionPattern.FindStringSubmatch(text)
		if match == nil {
			rejected = append(rejected, fmt.Sprintf("%s (version %q)", dir, strings.TrimSpace(text)))
			continue
		}
		major, _ := strconv.Atoi(match[1])
		if major < oldest {
			rejected = append(rejected, fmt.Sprintf("%s (PostgreSQL %d is too old)", dir, major))
			continue
		}
		if major > best {
			best, bestDir = major, dir
		}
	}
	if bestDir == "" {
		err := fmt.Errorf("no initdb and postgres, %d or later, in PATH or %s", oldest, strings.Join(programDirs, ", "))
		if rejected != nil {
			err = fmt.Errorf("%w; not usable: %s", err, strings.Join(rejected, ", "))
		}
		return "", err
	}
	return bestDir, nil
}
