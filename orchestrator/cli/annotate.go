package cli

import (
	"strings"

	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (sw *sweepCommands) annotateCommand() *cobra.Command {
	var out format
	var description string
	var add, remove []string
	cmd := &cobra.Command{
		Use:   "annotate SWEEP",
		Short: "Describe a sweep, or change its tags",
		Long: `Annotate changes a sweep's description of at most 2,000 bytes, and its tags, at most 20. They do not affect
training, and the sweep may have ended. 'outbid show' and the dashboard show both; the dashboard also searches them.`,
		Example: `  outbid annotate digits-1 --description "Without augmentation; the baseline of October."
  outbid annotate digits-1 --tag baseline --remove-tag draft
  outbid annotate digits-1 --description ""`,
		Args:              exactArgs("SWEEP"),
		ValidArgsFunction: sw.completeSweeps(),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &outbidv1.AnnotateSweepRequest{AddTags: add, RemoveTags: remove}
			if cmd.Flags().Changed("description") {
				req.Description = &description
			}
			if req.Description == nil && len(add)+len(remove) == 0 {
				return badInput("nothing to annotate: give --description, --tag or --remove-tag")
			}
			return sw.onSweep(cmd.Context(), args[0], func(c *connection, sweep *outbidv1.Sweep) error {
				req.Sweep = sweep.GetId()
				got, err := c.AnnotateSweep(cmd.Context(), req)
				if err != nil {
					return err
				}
				v := viewSweep(got.GetSweep(), sw.now())
				if out != formatTable {
					return sw.printObject(out, v)
				}
				sw.printf("%s has %s\n", v.ID, annotationText(v))
				return nil
			})
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().StringVar(&description, "description", "", "new `TEXT`; \"\" removes it")
	cmd.Flags().StringSliceVar(&add, "tag", nil, "`TAGS` to add, separated by commas")
	cmd.Flags().StringSliceVar(&remove, "remove-tag", nil, "`TAGS` to remove, separated by commas")
	return cmd
}

// annotationText describes the annotation of a sweep.
func annotationText(v sweepView) string {
	tags := "no tags"
	if len(v.Tags) > 0 {
		tags = "the tags " + clean(strings.Join(v.Tags, ", "))
	}
	if v.Description == "" {
		return tags + " and no description"
	}
	return tags + " and a description"
}
