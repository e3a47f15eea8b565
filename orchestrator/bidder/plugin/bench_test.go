package plugin

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

// BenchmarkBid measures one round of a bidder in another process: 64 sweeps, 64 machines with 4 free devices each.
// The request includes the bids of the built-in bidder.
func BenchmarkBid(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for name, command := range map[string][]string{
		"go":     {exe, asPlugin, "none"},
		"python": {python(b), "../../../examples/own-bidder/bidder.py"},
	} {
		b.Run(name, func(b *testing.B) {
			p, err := Open(b.Context(), map[string][]string{"it": command}, Usual(), slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			if err := p.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
			o := &bidder.Offer{}
			for i := range 64 {
				kind := [...]string{"v100", "k80"}[i%2]
				o.Lots = append(o.Lots, bidder.Lot{Node: fmt.Sprint("n", i), Rack: fmt.Sprint("r", i/8), Type: kind, Free: 4})
			}
			var apps []*bidder.AppState
			for i := range 64 {
				s := states("it")[0]
				s.App = fmt.Sprint("s-", i)
				apps = append(apps, s)
			}
			b.ResetTimer()
			for range b.N {
				tables, err := p.Bid(o, apps)
				if err != nil || tables[0].Refused != "" {
					b.Fatal(tables[0].Refused, err)
				}
			}
		})
	}
}
