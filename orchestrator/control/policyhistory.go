package control

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/rounds"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Summary counts the contents of a ledger, and lists the policies that decided in it.
type Summary struct {
	Batches, Events int
	// Rounds by the name of the policy that decided.
	Rounds map[string]int
	// History of policies in order. A restart with the same policy and options does not begin a new period.
	History []PolicyPeriod
}

// PolicyPeriod is a part of a ledger in which one policy decided with the same options.
type PolicyPeriod struct {
	// First batch, and when it was decided.
	First  uint64
	From   time.Time
	Policy string
	// Recorded reports that the ledger holds Options, which are all that the policy had. Older servers did not record
	// them.
	Recorded bool
	Options  map[string]string
	Rounds   int
}

// Summarise reads a ledger from its first batch, without a replay.
func Summarise(ctx context.Context, l ledger.Ledger) (*Summary, error) {
	o, table := &Summary{Rounds: map[string]int{}}, state.NewTable()
	err := l.Read(ctx, 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		o.Batches++
		o.Events += len(events)
		for _, e := range events {
			o.add(table, b, e)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the policies: %w", err)
	}
	return o, nil
}

// add adds an event of a batch.
func (o *Summary) add(table state.Table, b *outbidv1.Batch, e *outbidv1.Event) {
	if started := table.Leader(e); started != nil {
		p := started.GetPolicy()
		if p != nil || o.recorded() {
			o.begin(b, PolicyPeriod{Policy: p.GetName(), Recorded: p != nil, Options: p.GetOptions()})
		}
	}
	round := table.Round(e)
	if round == nil {
		return
	}
	o.Rounds[round.GetPolicy()]++
	if !o.recorded() {
		o.begin(b, PolicyPeriod{Policy: round.GetPolicy()})
	}
	o.History[len(o.History)-1].Rounds++
}

// recorded reports whether the options of the current policy are known.
func (o *Summary) recorded() bool {
	n := len(o.History)
	return n > 0 && o.History[n-1].Recorded
}

// begin adds a period, unless it continues the last one. If a server did not record its policy, the first round names
// it.
func (o *Summary) begin(b *outbidv1.Batch, s PolicyPeriod) {
	if n := len(o.History); n > 0 {
		last := &o.History[n-1]
		if last.Policy == "" && !s.Recorded {
			last.Policy = s.Policy
		}
		if last.Policy == s.Policy && last.Recorded == s.Recorded && maps.Equal(last.Options, s.Options) {
			return
		}
	}
	s.First, s.From = b.GetSeq(), b.GetTime().AsTime()
	o.History = append(o.History, s)
}

// PolicyText returns a policy and its options on one line, or only its name if it has no options or they are not
// known.
func PolicyText(name string, options map[string]string) string {
	if len(options) == 0 {
		return name
	}
	return name + " with " + OptionsText(options)
}

// OptionsText returns a policy's options on one line, by name.
func OptionsText(options map[string]string) string { return rounds.OptionsText(options) }
