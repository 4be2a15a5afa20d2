package console

import (
	"net/netip"
	"sync"
	"time"
)

const (
	failuresAllowed = 10 // within failureTime, from one address
	failureTime     = time.Minute
	maxAddresses    = 4096
)

// failures slows who tries tokens. A token cannot be guessed; this keeps the trying from being free.
type failures struct {
	now  func() time.Time
	mu   sync.Mutex
	seen map[netip.Prefix]*window
}

type window struct {
	since time.Time
	count int
}

// try takes an address's turn at a token, or says how long it has to wait for one.
func (f *failures) try(remote string) (wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	for from, w := range f.seen {
		if now.Sub(w.since) >= failureTime {
			delete(f.seen, from)
		}
	}
	w := f.window(remote, now)
	if w.count >= failuresAllowed {
		return w.since.Add(failureTime).Sub(now)
	}
	w.count++
	return 0
}

// right gives the turn back: the token was a good one.
func (f *failures) right(remote string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.window(remote, f.now()); w.count > 0 {
		w.count--
	}
}

func (f *failures) window(remote string, now time.Time) *window {
	from := network(remote)
	if f.seen[from] == nil && len(f.seen) >= maxAddresses {
		from = netip.Prefix{} // those for whom there is no room share one window
	}
	if f.seen[from] == nil {
		if f.seen == nil {
			f.seen = make(map[netip.Prefix]*window)
		}
		f.seen[from] = &window{since: now}
	}
	return f.seen[from]
}

// network is who an address belongs to: one IPv4 address, or a subscriber's IPv6 network.
func network(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := at.Addr().Unmap().WithZone(""), 64
	if ip.Is4() {
		bits = 32
	}
	return netip.PrefixFrom(ip, bits).Masked()
}
