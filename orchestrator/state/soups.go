package state

import (
	"slices"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// soups holds the soups of a sweep.
type soups struct {
	// Soups that are kept, oldest first. The list must not be changed.
	Soups []*outbidv1.Soup
}

// published adds a soup to a sweep: an average of chosen checkpoints.
func (l *soups) published(sweep string, e *outbidv1.SoupPublished) error {
	soup := e.GetSoup()
	switch {
	case soup.GetKey() == "":
		return broken("soup without a key")
	case soup.GetNumber() != l.NextSoup():
		return broken("soup %d of %s is out of order", soup.GetNumber(), sweep)
	}
	l.Soups = append(slices.Clip(l.Soups), soup) // readers may have the list
	return nil
}

func (l *soups) dropped(_ string, e *outbidv1.SoupDropped) error {
	i := slices.IndexFunc(l.Soups, func(o *outbidv1.Soup) bool { return o.GetKey() == e.GetKey() })
	if i < 0 {
		return broken("dropped soup %q does not exist", e.GetKey())
	}
	l.Soups = slices.Delete(slices.Clone(l.Soups), i, i+1)
	return nil
}

// NextSoup returns the number of the sweep's next soup. Numbers are not reused, because the newest soup is never
// dropped.
func (l *soups) NextSoup() int32 {
	if n := len(l.Soups); n > 0 {
		return l.Soups[n-1].GetNumber() + 1
	}
	return 1
}

// DroppableSoups lists the soups that the spec does not keep. It keeps as many of the newest soups as it keeps best
// checkpoints, and at least one.
func (s *Sweep) DroppableSoups() []*outbidv1.Soup {
	rules := s.Spec.GetCheckpoints()
	if rules.GetAll() {
		return nil
	}
	return s.Soups[:max(0, len(s.Soups)-max(1, int(rules.GetBest())))]
}
