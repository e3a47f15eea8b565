package api

import (
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// checkText rejects a request in which a string contains control characters or bidirectional controls, because they can
// make one name look like another. It repairs strings that a program wrote and that a user cannot correct.
func checkText(req any) error {
	m, ok := req.(proto.Message)
	if tell, tells := req.(*outbidv1.TellTrialRequest); !ok || tells && isPlainTell(tell) {
		return nil
	}
	err := sanitize.Fields(m, textRule)
	if wrong, ok := errors.AsType[*sanitize.FieldError](err); ok {
		// A spec's fields are named by their paths in the user's file.
		return fieldError(strings.TrimPrefix(wrong.Field, "spec."), "%s", wrong.Problem)
	}
	return err
}

// isPlainTell reports whether all strings of a report are plain text. Most requests are reports, and walking their
// fields by reflection costs as much as decoding them.
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

// textRule returns what is done with the strings of a field. Names, and all fields that are not listed, are rejected.
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
