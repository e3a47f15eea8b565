package state

import (
	"slices"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// soupPublished adds a soup to a sweep: an average of chosen checkpoints.
func (f *foldContext) soupPublished(e *outbidv1.SoupPublished) error {
	s, soup := f.sweep, e.GetSoup()
	switch {
	case soup.GetKey() == "":
		return broken("soup without a key")
	case soup.GetNumber() != s.NextSoup():
		return broken("soup %d of %s is out of order", soup.GetNumber(), s.ID)
	}
	s.Soups = append(slices.Clip(s.Soups), soup) // readers may have the list
	return nil
}

func (f *foldContext) soupDropped(e *outbidv1.SoupDropped) error {
	s := f.sweep
	i := slices.IndexFunc(s.Soups, func(o *outbidv1.Soup) bool { return o.GetKey() == e.GetKey() })
	if i < 0 {
		return broken("dropped soup %q does not exist", e.GetKey())
	}
	s.Soups = slices.Delete(slices.Clone(s.Soups), i, i+1)
	return nil
}

// NextSoup returns the number of the sweep's next soup. Numbers are not reused, because the newest soup is never
// dropped.
func (s *Sweep) NextSoup() int32 {
	if n := len(s.Soups); n > 0 {
		return s.Soups[n-1].GetNumber() + 1
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
