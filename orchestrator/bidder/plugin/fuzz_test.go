package plugin

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Whatever a plugin answers is refused, or fits the offer.
func FuzzAnswer(f *testing.F) {
	s := states("it")
	tables, err := bidder.BuiltIn{}.Bid(offer(), s)
	if err != nil {
		f.Fatal(err)
	}
	good := toResponse(tables)
	huge := &outbidv1.BidResponse{Tables: []*outbidv1.BidTable{
		{Rho: 1, IdealSeconds: 1, Rows: []*outbidv1.Bid{{Rho: 1, Gangs: []*outbidv1.Gangs{
			{Count: 1 << 30, Machines: 1 << 30, Devices: 1 << 30, Type: "v100"}, {Count: 1, Machines: 1, Devices: 3, Type: "k80"},
		}}}},
		{Refused: "no"},
	}}
	for _, m := range []*outbidv1.BidResponse{good, huge, {}} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m outbidv1.BidResponse
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		tables, err := answer(offer(), s, &m)
		if err != nil {
			return
		}
		for i := range tables {
			for _, row := range tables[i].Rows {
				wanted := map[string]int{}
				for _, g := range row.Gangs {
					wanted[g.Type] += g.Size()
				}
				if !sound(row.Rho) || wanted["v100"] > 6 || wanted["k80"] > 3 || len(wanted) == 0 {
					t.Fatalf("a bid for more than the offer was accepted: %+v", row)
				}
			}
		}
	})
}
