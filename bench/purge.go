package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// retention is the service's own, by which loaded rows are given their end.
const retention = 14 * 24 * time.Hour

// purge measures what purging costs those who reserve: at half of the maximum load, without anything to purge and then
// while so many expired rows are deleted, at the same pace.
func (b *bench) purge(rows, rounds int, d time.Duration) error {
	most, err := b.run(64, d, 0, reserveOnly)
	if err != nil {
		return err
	}
	pace := time.Duration(float64(64*time.Second) / (most.ops / 2))
	reserves := func() (result, error) {
		var all []result
		for range rounds {
			r, err := b.run(64, d, pace, reserveOnly)
			if err != nil {
				return result{}, err
			}
			all = append(all, r)
		}
		return median(all), nil
	}
	without, err := reserves()
	if err != nil {
		return err
	}
	if err := b.db.load(rows, uuid.NewString, time.Now().Add(-retention-time.Minute)); err != nil {
		return err
	}
	// It looks for work at a leisurely pace, and first passes over what was just reserved; where there is some it goes on at once.
	before, err := b.expired()
	for deadline := time.Now().Add(5 * time.Minute); err == nil && before > rows-rows/100; {
		if time.Now().After(deadline) {
			return errors.New("nothing is purged")
		}
		time.Sleep(100 * time.Millisecond)
		before, err = b.expired()
	}
	if err != nil {
		return err
	}
	begun := time.Now()
	with, err := reserves()
	if err != nil {
		return err
	}
	took := time.Since(begun)
	after, err := b.expired()
	if err != nil {
		return err
	}
	if after == 0 {
		return fmt.Errorf("%d rows were purged before the measurement ended; give it more rows", rows)
	}
	fmt.Printf("%d reserves a second; without purging p50 %s, p99 %s; while %.0f expired rows a second were purged p50 %s, p99 %s: %.2f (at most 1.5)\n",
		int(most.ops/2), without.p50, without.p99, float64(before-after)/took.Seconds(), with.p50, with.p99, float64(with.p99)/float64(without.p99))
	return nil
}

// expired counts the rows that are still to be purged.
func (b *bench) expired() (int, error) {
	const sql = "SELECT count(*) FROM entries WHERE expires_at < now()"
	out, err := exec.Command(b.db.bin+"/psql", "-X", "-q", "-t", "-A", "-c", sql, b.db.url()).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("psql: %w: %s", err, out)
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}
