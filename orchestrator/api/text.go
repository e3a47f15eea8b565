package api

import (
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// checkText refuses a request in which a string holds what must not reach readers: control characters and bidirectional controls, by
// which a name looks like another. It repairs what a machine wrote and nobody can write again.
func checkText(req any) error {
	m, ok := req.(proto.Message)
	if tell, tells := req.(*outbidv1.TellTrialRequest); !ok || tells && isPlainTell(tell) {
		return nil
	}
	err := sanitize.Fields(m, textRule)
	if wrong, ok := errors.AsType[*sanitize.FieldError](err); ok {
		// Specs are named by their own paths, as in the file that they come from.
		return fieldError(strings.TrimPrefix(wrong.Field, "spec."), "%s", wrong.Problem)
	}
	return err
}

// isPlainTell reports whether what a client tells is plain text. By far the most requests are such, and to look at each field of
// thousands of reports by its description costs as much as to decode them.
func isPlainTell(tell *outbidv1.TellTrialRequest) bool {
	if !sanitize.IsPlain(tell.GetSweep(), tell.GetError()) {
		return false
	}
	for _, r := range tell.GetReports() {
		for name := range r.GetMetrics() {
			if !sanitize.IsPlain(name) {
				return false
			}
		}
		for name, value := range r.GetAttributes() {
			if !sanitize.IsPlain(name, value) {
				return false
			}
		}
	}
	return true
}

// textRule says what is done with the strings of a field. Names and all else that is not listed are refused.
func textRule(field protoreflect.FieldDescriptor, key bool) sanitize.Rule {
	if key {
		return sanitize.Refuse
	}
	switch field.FullName() {
	case "outbid.v1.TellTrialRequest.error", "outbid.v1.Report.attributes", "outbid.v1.SoupPart.note":
		return sanitize.Repair
	case "outbid.v1.Program.command", "outbid.v1.Program.shell", "outbid.v1.Program.env", "outbid.v1.Function.env",
		"outbid.v1.PluginTuner.command", "outbid.v1.SetSecretRequest.value", "google.protobuf.Value.string_value":
		return sanitize.RefuseBidi
	}
	return sanitize.Refuse
}
