package bidder_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestRecordedAnswersAsTheBidderDid(t *testing.T) {
	t.Parallel()
	said := bidder.Table{Rho: 3, Ideal: 40, Rows: []bidder.Row{
		{Gangs: []bidder.Gangs{{Count: 1, Machines: 2, Devices: 4, Type: "v100", Rack: "r1"}}, Rho: 2},
		{Gangs: []bidder.Gangs{{Count: 2, Machines: 1, Devices: 1, Type: "k80", Node: "n1"}}, Rho: 2.5},
	}}
	record := &outbidv1.Auction{Bidders: []*outbidv1.Bidder{
		{Sweep: "other-1", Refused: "bidder it lost its bid"},
		{Sweep: "digits-1", Rho: said.Rho, IdealSeconds: said.Ideal, Bids: said.Bids()},
	}}
	tables, err := bidder.Recorded(record).Bid(&bidder.Offer{}, []*bidder.AppState{
		{App: "digits-1"}, {App: "other-1"}, {App: "late-1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []bidder.Table{
		said, {Refused: "bidder it lost its bid"}, {Refused: "the record of this round has no answer of its bidder"},
	}
	if diff := cmp.Diff(want, tables); diff != "" {
		t.Errorf("tables (-said +recorded):\n%s", diff)
	}
}
