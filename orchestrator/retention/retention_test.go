package retention_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/retention"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fakeSweeps are the sweeps of a server without one.
type fakeSweeps struct {
	all []*outbidv1.Sweep
	// fails is the tenant whose deletions fail; stalls is one whose deletions wait for the context.
	fails, stalls string
	deleted       []string
}

func (f *fakeSweeps) Sweeps() []*outbidv1.Sweep { return f.all }

func (f *fakeSweeps) SweepBytes(string) int64 { return 100 }

func (f *fakeSweeps) Delete(ctx context.Context, id, actor string) (state.Deleted, error) {
	i := slices.IndexFunc(f.all, func(s *outbidv1.Sweep) bool { return s.GetId() == id })
	switch tenant := f.all[i].GetSpec().GetTenant(); {
	case tenant == f.fails:
		return state.Deleted{}, errors.New("the store is away")
	case tenant == f.stalls:
		<-ctx.Done()
		return state.Deleted{}, ctx.Err()
	}
	f.all = slices.Delete(f.all, i, i+1)
	f.deleted = append(f.deleted, actor+" "+id)
	return state.Deleted{}, nil
}

// add adds a sweep that ended some hours ago, or runs if hours is 0.
func (f *fakeSweeps) add(id, tenant string, hours int, soups ...*outbidv1.Soup) {
	s := &outbidv1.Sweep{Id: id, Spec: &outbidv1.SweepSpec{Tenant: tenant}, Soups: soups}
	if hours > 0 {
		s.Ended = timestamppb.New(now().Add(-time.Duration(hours) * time.Hour))
	}
	f.all = append(f.all, s)
}

func now() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// newKeeper keeps the sweeps of each tenant for a day, and those of speech without end.
func newKeeper(f *fakeSweeps, deleted func(*outbidv1.Expired, string)) *retention.Keeper {
	return retention.New(retention.Config{
		Sweeps: f, Now: now, Logger: slog.New(slog.DiscardHandler), Deleted: deleted,
		Limits: func(tenant string) limits.Tenant {
			l := limits.Default()
			if tenant != "speech" {
				l.RetainSweeps = 24 * 3600
			}
			return l
		},
	})
}

func every(string) bool { return true }

func TestPlanListsWhatHasExpired(t *testing.T) {
	t.Parallel()
	f := &fakeSweeps{}
	f.add("runs-1", "vision", 0)
	f.add("old-1", "vision", 25)
	f.add("young-1", "vision", 23)
	f.add("oldest-1", "vision", 99)
	f.add("exact-1", "", 24)
	f.add("soup-1", "vision", 50, &outbidv1.Soup{Number: 1})
	f.add("forever-1", "speech", 9999)
	expired, kept := newKeeper(f, nil).Plan(every)
	if got := words(expired); got != "oldest-1 old-1 exact-1" {
		t.Errorf("expired: %s", got)
	}
	if got := words(kept); got != "soup-1" || !strings.Contains(kept[0].GetReason(), "soup") {
		t.Errorf("kept: %s, %v", got, kept)
	}
	if e := expired[0]; e.GetRetain() != "1d" || e.GetBytes() != 100 || !strings.Contains(e.GetReason(), "retain_sweeps of tenant vision") {
		t.Errorf("%v", e)
	}
	if got, _ := newKeeper(f, nil).Plan(func(tenant string) bool { return tenant == "default" }); words(got) != "exact-1" {
		t.Errorf("of one tenant: %s", words(got))
	}
	if len(f.deleted) > 0 {
		t.Errorf("a plan deleted %v", f.deleted)
	}
}

func words(list []*outbidv1.Expired) string {
	var ids []string
	for _, e := range list {
		ids = append(ids, e.GetSweep())
	}
	return strings.Join(ids, " ")
}

// TestAPassIsBoundedAndIsolated has a tenant whose deletions fail, one whose deletions never end, and one with more sweeps
// than a pass deletes.
func TestAPassIsBoundedAndIsolated(t *testing.T) {
	t.Parallel()
	f := &fakeSweeps{fails: "broken", stalls: "slow"}
	f.add("broken-1", "broken", 99)
	f.add("slow-1", "slow", 98)
	for i := range 100 {
		f.add(fmt.Sprintf("vision-%d", i), "vision", 90-i/2)
	}
	var records []string
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the slow tenant's time is over at once
	newKeeper(f, func(e *outbidv1.Expired, actor string) { records = append(records, actor+" "+e.GetSweep()) }).Pass(ctx)
	if len(f.deleted) != 60 || f.deleted[0] != "retention vision-0" {
		t.Errorf("deleted %d: %v", len(f.deleted), f.deleted)
	}
	if !slices.Equal(records, f.deleted) {
		t.Errorf("recorded %v, deleted %v", records, f.deleted)
	}
}

func TestDeleteReturnsTheErrors(t *testing.T) {
	t.Parallel()
	f := &fakeSweeps{fails: "broken"}
	f.add("broken-1", "broken", 99)
	f.add("old-1", "vision", 98)
	k := newKeeper(f, nil)
	expired, _ := k.Plan(every)
	done := k.Delete(t.Context(), expired, "ann")
	if len(done) != 2 || done[0].GetError() != "the store is away" || done[1].GetError() != "" || !slices.Equal(f.deleted, []string{"ann old-1"}) {
		t.Errorf("%v, %v", done, f.deleted)
	}
}
