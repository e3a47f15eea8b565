package mcp

import (
	"context"
	"errors"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// annotationView is the description and the tags of a sweep.
type annotationView struct {
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
}

// viewAnnotation returns an annotation with at most limit bytes of its description.
func viewAnnotation(a *outbidv1.Annotation, limit int) annotationView {
	return annotationView{Description: cleanText(a.GetDescription(), limit), Tags: lines(a.GetTags())}
}

// annotatedView is the answer of annotate.
type annotatedView struct {
	answer
	Sweep  sweepView      `json:"sweep" jsonschema:"the sweep after the change"`
	Before annotationView `json:"before" jsonschema:"the description and the tags before the change"`
}

func annotateTool() *tool {
	type arguments struct {
		Sweep       string
		Description *string
		AddTags     []string `json:"add_tags"`
		RemoveTags  []string `json:"remove_tags"`
	}
	return define(tool{
		name: "annotate", title: "Describe a sweep", effect: adds, repeatable: true,
		about: "Changes the description and the tags of a sweep, which may have ended. Users see both in lists of sweeps. They do not affect training.",
		inputs: []input{
			sweepInput(),
			{name: "description", kind: "string", most: limits.Description, about: "new description, as plain text; \"\" removes it"},
			{name: "add_tags", kind: "array", most: limits.TagCount, about: "tags to add, without spaces and commas"},
			{name: "remove_tags", kind: "array", most: limits.TagCount, about: "tags to remove"},
		},
	}, func(ctx context.Context, c *call, in arguments) (*annotatedView, error) {
		if in.Description == nil && len(in.AddTags)+len(in.RemoveTags) == 0 {
			return nil, errors.New("nothing to annotate: give description, add_tags or remove_tags")
		}
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		got, err := c.API.AnnotateSweep(ctx, &outbidv1.AnnotateSweepRequest{
			Sweep: s.GetId(), Description: in.Description, AddTags: in.AddTags, RemoveTags: in.RemoveTags,
		})
		if err != nil {
			return nil, err
		}
		return &annotatedView{Sweep: c.viewSweep(got.GetSweep()), Before: viewAnnotation(s.GetAnnotation(), limits.Description)}, nil
	})
}
