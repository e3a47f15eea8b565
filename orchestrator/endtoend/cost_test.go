package endtoend

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// leaseCosts returns the cost of each sweep's leases on CPUs according to the ledger's prices and times.
func (s *server) leaseCosts() (costs map[string]float64, changes int) {
	s.t.Helper()
	costs = map[string]float64{}
	type grant struct {
		at   time.Time
		hour float64
	}
	leases, hour := map[uint64]grant{}, 0.0
	r, err := s.ReadLedger(s.t.Context(), &outbidv1.ReadLedgerRequest{})
	err = drain(r, err, func(m *outbidv1.ReadLedgerResponse) error {
		var all outbidv1.Events
		if err := proto.Unmarshal(m.GetBatch().GetEvents(), &all); err != nil {
			return err
		}
		at := m.GetBatch().GetTime().AsTime()
		for _, e := range all.GetEvents() {
			if p := e.GetDevicePricesChanged(); p != nil {
				hour, changes = p.GetPrices().GetDeviceHour()["cpu"], changes+1
			}
			if g := e.GetLeaseGranted(); g != nil {
				leases[g.GetLeaseId()] = grant{at, hour * float64(len(g.GetPlaces()[0].GetDevices()))}
			}
			if ended := e.GetLeaseEnded(); ended != nil {
				g := leases[ended.GetLeaseId()]
				costs[ended.GetSweep()] += at.Sub(g.at).Hours() * g.hour
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return costs, changes
}

// TestACostLimitEndsASweep ends a sweep at a limit of its cost, again after an extension at a new price, and after a restart
// without the file of prices.
func TestACostLimitEndsASweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	prices := filepath.Join(dir, "prices.yaml")
	put := func(text string) {
		if err := os.WriteFile(prices, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	limited := func() *outbidv1.SweepSpec {
		spec := shell("dear", dir, `step=0; while :; do step=$((step+1)); echo '{{"step":'$step',"loss":1}}' >> "$OUTBID_REPORT"; sleep .1; done`, 40)
		spec.Limits.Cost = 2
		return spec
	}
	s := serve(t, dir, "up", "--devices", "cpu:2")
	_, err := s.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: limited()})
	if got := status.Convert(err).Message(); !strings.Contains(got, "limits.cost: needs prices of devices, and this server has none; start it with --prices FILE") {
		t.Fatalf("without prices: %q", got)
	}
	s.stop()
	put("currency: EUR\ndevice_hour: {cpu: 3600}\n") // a euro a second
	s = serve(t, dir, "up", "--devices", "cpu:2", "--prices", prices)
	id := s.submit(limited())
	check := func(most float64, changes int) {
		t.Helper()
		sw, reason := s.wait(id), "limit reached: cost of "+fmt.Sprint(most)+" EUR"
		costs, changed := s.leaseCosts()
		if sw.GetReason() != reason || sw.GetCost() < most || sw.GetCurrency() != "EUR" || math.Abs(costs[id]-sw.GetCost()) > 1e-6 || changed != changes {
			t.Errorf("%s after %v %s, the ledger has %v at %d prices; want %s", sw.GetReason(), sw.GetCost(), sw.GetCurrency(), costs[id], changed, reason)
		}
		if text := s.says(dir, "show", id); !strings.Contains(text, " of "+fmt.Sprint(most)+" EUR") {
			t.Errorf("outbid show prints\n%s", text)
		}
	}
	check(2, 1)
	put("currency: EUR\ndevice_hour: {cpu: 7200}\n")
	poll(t, "the new prices in the ledger", func() bool { _, n := s.leaseCosts(); return n == 2 })
	raise := func(most float64) {
		t.Helper()
		if text := s.says(dir, "extend", id, "--cost", fmt.Sprint(most)); !strings.Contains(text, id) {
			t.Fatal(text)
		}
	}
	raise(20)
	check(20, 2)
	s.stop()
	s = serve(t, dir, "up", "--devices", "cpu:2")
	raise(30)
	check(30, 2)
	s.stop()
	mustRepeat(t, dir, "data")
}
