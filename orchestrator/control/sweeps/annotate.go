package sweeps

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Annotate changes the description and the tags of a sweep in any state. A request that changes nothing has no event.
func (sw *Sweeps) Annotate(req *outbidv1.AnnotateSweepRequest, actor string) error {
	s, err := sw.st.Sweep(req.GetSweep())
	if err != nil {
		return err
	}
	changed, err := annotated(s.Annotation, req)
	if err != nil {
		return fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	if proto.Equal(changed, s.Annotation) || s.Annotation == nil && proto.Size(changed) == 0 {
		return nil
	}
	if err := sw.tenants.TooFast(state.TenantOf(s.Spec)); err != nil {
		return err
	}
	sw.tenants.CountBytes(s, proto.Size(changed))
	sw.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepAnnotated{SweepAnnotated: &outbidv1.SweepAnnotated{
		Sweep: s.ID, Annotation: changed, Actor: actor,
	}}})
	return nil
}

// annotated returns a sweep's annotation after a request; old, which may be nil, is not changed.
func annotated(old *outbidv1.Annotation, req *outbidv1.AnnotateSweepRequest) (*outbidv1.Annotation, error) {
	now := &outbidv1.Annotation{Description: old.GetDescription(), Tags: slices.Clone(old.GetTags())}
	if req.Description != nil {
		now.Description = strings.TrimSpace(req.GetDescription())
		if err := sanitize.Check(now.GetDescription(), limits.Description); err != nil {
			return nil, fmt.Errorf("description: %w", err)
		}
	}
	for _, tag := range req.GetAddTags() {
		if err := checkTag(tag); err != nil {
			return nil, err
		}
		if !slices.Contains(now.GetTags(), tag) {
			now.Tags = append(now.Tags, tag)
		}
	}
	now.Tags = slices.DeleteFunc(now.Tags, func(tag string) bool { return slices.Contains(req.GetRemoveTags(), tag) })
	if n := len(now.GetTags()); n > limits.TagCount {
		return nil, fmt.Errorf("add_tags: the sweep would have %d tags; at most %d are allowed", n, limits.TagCount)
	}
	slices.Sort(now.Tags)
	return now, nil
}

// checkTag returns an error for a tag that cannot be searched for as one word.
func checkTag(tag string) error {
	if err := sanitize.Check(tag, limits.Tag); err != nil {
		return fmt.Errorf("add_tags: %.80q %w", tag, err)
	}
	if tag == "" || strings.ContainsFunc(tag, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		return fmt.Errorf("add_tags: %.80q is not a valid tag; use 1 to %d bytes without spaces and commas", tag, limits.Tag)
	}
	return nil
}
