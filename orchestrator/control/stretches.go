package control

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Overview is what a ledger holds, and who decided in it.
type Overview struct {
	Batches, Events int
	// Rounds by the name of the policy that decided.
	Rounds map[string]int
	// Stretches in order. A server that was started again as it was goes on with the one before.
	Stretches []Stretch
}

// Stretch is a part of a ledger in which one policy decided with the same options.
type Stretch struct {
	// First batch, and when it was decided.
	First  uint64
	From   time.Time
	Policy string
	// Recorded says that the ledger holds Options, which are all that the policy had. Older servers did not write them down.
	Recorded bool
	Options  map[string]string
	Rounds   int
}

// Survey reads a ledger from its first batch on, and decides nothing again.
func Survey(ctx context.Context, l ledger.Ledger) (*Overview, error) {
	o := &Overview{Rounds: map[string]int{}}
	err := l.Read(ctx, 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		o.Batches++
		o.Events += len(events)
		for _, e := range events {
			o.see(b, e)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading who decided: %w", err)
	}
	return o, nil
}

func (o *Overview) see(b *outbidv1.Batch, e *outbidv1.Event) {
	if started := e.GetOrchestratorStarted(); started != nil {
		p := started.GetPolicy()
		if p != nil || o.recorded() {
			o.begin(b, Stretch{Policy: p.GetName(), Recorded: p != nil, Options: p.GetOptions()})
		}
	}
	round := e.GetRoundDecided()
	if round == nil {
		return
	}
	o.Rounds[round.GetPolicy()]++
	if !o.recorded() {
		o.begin(b, Stretch{Policy: round.GetPolicy()})
	}
	o.Stretches[len(o.Stretches)-1].Rounds++
}

// recorded says whether the options of who decides now are known.
func (o *Overview) recorded() bool {
	n := len(o.Stretches)
	return n > 0 && o.Stretches[n-1].Recorded
}

// begin a stretch, unless it is as the one before. Of a server that did not write down its policy, the first round says it.
func (o *Overview) begin(b *outbidv1.Batch, s Stretch) {
	if n := len(o.Stretches); n > 0 {
		last := &o.Stretches[n-1]
		if last.Policy == "" && !s.Recorded {
			last.Policy = s.Policy
		}
		if last.Policy == s.Policy && last.Recorded == s.Recorded && maps.Equal(last.Options, s.Options) {
			return
		}
	}
	s.First, s.From = b.GetSeq(), b.GetTime().AsTime()
	o.Stretches = append(o.Stretches, s)
}
