package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/idemstore/idemstore/client"
)

// The mark speaks of the effect that returns it, and of no other: what another call of Once returned is an error like any.
func TestOnlyTheEffectsOwnWordCounts(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := connect(t, s)
	inner := func(ctx context.Context) error {
		_, err := c.Once(ctx, key(), func(context.Context, client.Grant) (client.Response, error) {
			return client.Response{}, client.NotDone(errors.New("refused"))
		})
		return err
	}
	unsure := key()
	s.vanish(t, unsure)
	innerDoubt := func(ctx context.Context) error {
		_, err := c.Once(ctx, unsure, never(t), client.WithLook(func(context.Context, *client.InDoubtError) (client.Finding, error) {
			return client.CannotTell(), client.NotDone(errors.New("the look was refused"))
		}))
		return err
	}
	for name, effect := range map[string]func(ctx context.Context) error{
		"another key's release": inner,
		"another key's doubt":   innerDoubt,
		"one made by hand":      func(context.Context) error { return &client.NotDoneError{} },
		"joined":                func(ctx context.Context) error { return errors.Join(errors.New("timeout"), inner(ctx)) },
	} {
		k := key()
		_, err := c.Once(t.Context(), k, func(ctx context.Context, _ client.Grant) (client.Response, error) {
			return client.Response{}, effect(ctx)
		})
		var doubt *client.InDoubtError
		if !errors.As(err, &doubt) || doubt.Key != k || client.NothingHappened(err) || s.state(t, k) != "in_progress" {
			t.Errorf("%s: it is %s, and may be tried again: %t: %v", name, s.state(t, k), client.NothingHappened(err), err)
		}
		_, err = c.Once(t.Context(), key(), func(ctx context.Context, _ client.Grant) (client.Response, error) {
			return client.Response{}, client.NotDone(effect(ctx))
		})
		if !client.NothingHappened(err) {
			t.Errorf("%s, marked: %v", name, err)
		}
	}
	if marked := client.NotDone(errors.New("refused")); !client.NothingHappened(fmt.Errorf("before it began: %w", marked)) || client.NothingHappened(nil) {
		t.Error("what is marked is not known")
	}
}

// What an effect says around the mark is not lost.
func TestNotDoneKeepsTheWholeError(t *testing.T) {
	t.Parallel()
	s, mine := start(t), errors.New("no charge was made")
	_, err := connect(t, s).Once(t.Context(), key(), func(context.Context, client.Grant) (client.Response, error) {
		return client.Response{}, fmt.Errorf("%w: %w", mine, client.NotDone(errors.New("refused")))
	})
	if !client.NothingHappened(err) || !errors.Is(err, mine) {
		t.Fatal(err)
	}
}

func TestNoEffect(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := connect(t, s)
	if _, err := c.Once(t.Context(), key(), nil); err == nil || client.NothingHappened(err) {
		t.Error(err)
	}
	if err := c.OnceEach(t.Context(), []client.Task{{Key: key(), Effect: never(t)}, {Key: key()}}, nil); err == nil {
		t.Error("a task without an effect is taken")
	}
	if n := s.count("reserve"); n != 0 {
		t.Errorf("%d calls", n)
	}
}
