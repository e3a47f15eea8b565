package control

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A PublishSoup adds a stored soup to a sweep. Done is called once it is in the ledger.
type PublishSoup struct {
	Sweep string
	// Soup has been checked and has its key. The core sets its number and time.
	Soup *outbidv1.Soup
	Done func(*outbidv1.Soup, error)
}

func (in PublishSoup) apply(c *Core) {
	soup, err := c.publishSoup(in)
	c.reply(func() { in.Done(soup, err) })
}

func (c *Core) publishSoup(in PublishSoup) (*outbidv1.Soup, error) {
	s, err := c.st.Sweep(in.Sweep)
	if err != nil {
		return nil, err
	}
	for _, p := range in.Soup.GetParts() {
		if _, err := s.Trial(p.GetTrial()); err != nil {
			return nil, fmt.Errorf("%w: soup.parts: %w", state.ErrInvalid, err)
		}
	}
	soup := proto.CloneOf(in.Soup)
	soup.Number, soup.Time = s.NextSoup(), timestamppb.New(c.now)
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_SoupPublished{SoupPublished: &outbidv1.SoupPublished{Sweep: s.ID, Soup: soup}}})
	for _, old := range slices.Clone(s.DroppableSoups()) {
		c.emit(&outbidv1.Event{Kind: &outbidv1.Event_SoupDropped{SoupDropped: &outbidv1.SoupDropped{Sweep: s.ID, Key: old.GetKey()}}})
		c.out.Delete = append(c.out.Delete, old.GetKey())
	}
	return soup, nil
}

// PublishSoup adds a stored soup to a sweep, and returns it as recorded in the ledger. Soups that the sweep no longer
// keeps are deleted.
func (l *Loop) PublishSoup(ctx context.Context, sweep string, soup *outbidv1.Soup) (*outbidv1.Soup, error) {
	return do(ctx, l, func(done func(*outbidv1.Soup, error)) Input {
		return PublishSoup{Sweep: sweep, Soup: soup, Done: done}
	})
}
