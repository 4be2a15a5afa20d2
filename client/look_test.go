package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/idemstore/idemstore/client"
)

// found is a look that always finds this.
func found(f client.Finding) client.Option {
	return client.WithLook(func(context.Context, *client.InDoubtError) (client.Finding, error) { return f, nil })
}

func TestInDoubtWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s, k, down := start(t), key(), errors.New("upstream is down")
	s.vanish(t, k)
	for name, c := range map[string]struct {
		look client.Option
		err  error
	}{
		"no look":     {client.WithLook(nil), nil},
		"cannot tell": {found(client.CannotTell()), nil},
		"error": {client.WithLook(func(context.Context, *client.InDoubtError) (client.Finding, error) {
			return client.NotHappened(), down
		}), down},
	} {
		_, err := connect(t, s).Once(t.Context(), k, never(t), c.look)
		var doubt *client.InDoubtError
		if !errors.As(err, &doubt) || client.NothingHappened(err) || len(doubt.Doubts) != 1 || doubt.Doubts[0].Owner != "other" || doubt.OnlyOperator {
			t.Errorf("%s: %#v", name, err)
		}
		if c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLookFindsThatItHappened(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	s.vanish(t, k)
	response, err := connect(t, s, found(client.Happened(client.Response{Status: 201, Body: []byte("ch_1")}))).Once(t.Context(), k, never(t))
	if err != nil || !response.Replayed || string(response.Body) != "ch_1" || s.state(t, k) != "recorded" {
		t.Fatalf("%+v %v, and it is %s", response, err, s.state(t, k))
	}
}

func TestLookFindsThatItDidNot(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	s.vanish(t, k)
	response, err := connect(t, s, found(client.NotHappened())).Once(t.Context(), k, e.charge)
	if err != nil || response.Replayed {
		t.Fatalf("%+v %v", response, err)
	}
	e.want(t, 1)
}

// Neither this one nor an earlier one has acted: then no doubt is left.
func TestLookThenNotDone(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	s.vanish(t, k)
	_, err := connect(t, s, found(client.NotHappened())).Once(t.Context(), k, func(context.Context, client.Grant) (client.Response, error) {
		return client.Response{}, client.NotDone(errors.New("refused"))
	})
	if !client.NothingHappened(err) || s.state(t, k) != "not_found" {
		t.Fatalf("%v, and it is %s", err, s.state(t, k))
	}
}

// A look authorises nothing beyond the doubts that it was told of.
func TestDoubtMovesOnDuringTheLook(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	s.vanish(t, k)
	looks := 0
	_, err := connect(t, s).Once(t.Context(), k, e.charge, client.WithLook(func(_ context.Context, doubt *client.InDoubtError) (client.Finding, error) {
		if looks++; looks == 1 {
			takeOver(t, s, k)
			s.pass(t, time.Minute)
		}
		if len(doubt.Doubts) != looks {
			t.Errorf("look %d is told of %d doubts", looks, len(doubt.Doubts))
		}
		return client.NotHappened(), nil
	}))
	if err != nil || looks != 2 {
		t.Fatalf("%d looks: %v", looks, err)
	}
	e.want(t, 1)
}

// The doubt of an earlier attempt stands in the way of a later one.
func TestEarlierAttemptInDoubt(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	s.vanish(t, k)
	k.Attempt = 1
	_, err := connect(t, s).Once(t.Context(), k, e.charge, client.WithLook(func(_ context.Context, doubt *client.InDoubtError) (client.Finding, error) {
		if doubt.Key != k || doubt.Attempt != 0 {
			t.Errorf("%+v", doubt)
		}
		return client.NotHappened(), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	e.want(t, 1)
}

func TestOnlyAnOperatorCanHelp(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	s.vanish(t, k)
	for range 16 {
		takeOver(t, s, k)
	}
	s.pass(t, time.Minute)
	_, err := connect(t, s).Once(t.Context(), k, never(t), client.WithLook(func(context.Context, *client.InDoubtError) (client.Finding, error) {
		t.Error("there is nothing left to look for")
		return client.NotHappened(), nil
	}))
	var doubt *client.InDoubtError
	if !errors.As(err, &doubt) || !doubt.OnlyOperator {
		t.Fatalf("%#v", err)
	}
}
