package accounts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

func connect(t *testing.T) *nats.Conn {
	t.Helper()
	s, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	nc, err := bus.Connect(t.Context(), bus.ConnConfig{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func openStore(t *testing.T, nc *nats.Conn, changed func([]*Account)) *Store {
	t.Helper()
	s, err := Open(t.Context(), nc, Config{Now: time.Now, Changed: changed, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t *testing.T, s *Store, tenant, name string) string {
	t.Helper()
	token, _, err := s.Create(t.Context(), Account{
		Tenant: tenant, Name: name, Role: "user", Scopes: []string{"read"}, CreatedBy: "root", Expires: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestAccountsOutliveTheServer checks that the bucket has everything but the tokens.
func TestAccountsOutliveTheServer(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	s := openStore(t, nc, nil)
	token := create(t, s, "vision", "ci")
	create(t, s, "*", "board")
	used := time.Now().Truncate(time.Second)
	s.List("vision")[0].Use(used)
	s.StoreUses(t.Context())
	again := openStore(t, nc, nil)
	list := again.List("")
	if len(list) != 2 || list[0].Tenant != "*" || list[1].Name != "ci" {
		t.Fatalf("%+v", list)
	}
	if a := list[1]; a.Role != "user" || a.Scopes[0] != "read" || a.CreatedBy != "root" || len(a.Keys) != 1 || !a.LastUsed().Equal(used) {
		t.Errorf("%+v, last used %s", a, a.LastUsed())
	}
	entry, err := s.kv.Get(t.Context(), "vision/ci")
	if err != nil || strings.Contains(string(entry.Value()), token) || strings.Contains(string(entry.Value()), strings.TrimPrefix(token, "outbid_")) {
		t.Errorf("the bucket has the token: %s, %v", entry.Value(), err)
	}
}

// TestRotationReplacesTheKey rotates with and without an overlap.
func TestRotationReplacesTheKey(t *testing.T) {
	t.Parallel()
	s := openStore(t, connect(t), nil)
	create(t, s, "vision", "ci")
	first := s.List("vision")[0].Keys[0]
	if _, a, err := s.Rotate(t.Context(), "vision", "ci", time.Now().Add(time.Hour), time.Minute); err != nil || len(a.Keys) != 2 ||
		a.Keys[1].Hash != first.Hash || time.Until(a.Keys[1].Until) > time.Minute {
		t.Errorf("%+v, %v", a, err)
	}
	if _, a, err := s.Rotate(t.Context(), "vision", "ci", time.Now().Add(time.Hour), 0); err != nil || len(a.Keys) != 1 || a.Keys[0].Hash == first.Hash {
		t.Errorf("%+v, %v", a, err)
	}
	if _, _, err := s.Rotate(t.Context(), "vision", "nothing", time.Now(), 0); !errors.Is(err, ErrMissing) {
		t.Errorf("%v", err)
	}
}

// TestRevocationIsReportedAtOnce checks what Changed received when Revoke returns, and that neither a late use nor late
// news bring the account back.
func TestRevocationIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	names := func(list []*Account) (all string) {
		for _, a := range list {
			all += a.Name + " "
		}
		return all
	}
	var last string
	s := openStore(t, nc, func(list []*Account) { last = names(list) })
	create(t, s, "vision", "ci")
	create(t, s, "vision", "board")
	old := s.List("vision")[1]
	entry, err := s.kv.Get(t.Context(), "vision/ci")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Revoke(t.Context(), "vision", "ci"); err != nil || last != "board " {
		t.Errorf("%v, %q", err, last)
	}
	old.Use(time.Now())
	s.StoreUses(t.Context())
	s.apply(entry) // the watcher is late
	if got := names(s.List("")); got != "board " {
		t.Errorf("%q", got)
	}
	if got := names(openStore(t, nc, nil).List("")); got != "board " {
		t.Errorf("%q after opening again", got)
	}
	if err := s.Revoke(t.Context(), "vision", "ci"); !errors.Is(err, ErrMissing) {
		t.Errorf("%v", err)
	}
	create(t, s, "vision", "ci")
	if got := names(s.List("")); got != "board ci " {
		t.Errorf("%q after creating it again", got)
	}
}

// TestNamesAreUniqueAndLimited checks the errors of Create.
func TestNamesAreUniqueAndLimited(t *testing.T) {
	t.Parallel()
	s := openStore(t, connect(t), nil)
	for i := range limits.Tokens {
		create(t, s, "vision", fmt.Sprint("t-", i))
	}
	if _, _, err := s.Create(t.Context(), Account{Tenant: "vision", Name: "t-0"}); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
	_, _, err := s.Create(t.Context(), Account{Tenant: "vision", Name: "more"})
	if _, ok := errors.AsType[*state.LimitError](err); !ok {
		t.Errorf("%v", err)
	}
	create(t, s, "speech", "t-0")
}

// TestFollowAppliesLateWritesOfAnotherServer lets one store follow what another writes.
func TestFollowAppliesLateWritesOfAnotherServer(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	changed := make(chan int, 100)
	s := openStore(t, nc, func(list []*Account) { changed <- len(list) })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Follow(ctx) }()
	other := openStore(t, nc, nil)
	create(t, other, "vision", "ci")
	await(t, changed, 1)
	if err := other.Revoke(t.Context(), "vision", "ci"); err != nil {
		t.Fatal(err)
	}
	await(t, changed, 0)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// await waits until n accounts are reported.
func await(t *testing.T, changed chan int, n int) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case got := <-changed:
			if got == n {
				return
			}
		case <-timeout:
			t.Fatalf("no report of %d accounts", n)
		}
	}
}
