package cli

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// parseSpace reads a file that holds parameters alone, with or without the word "space" above them.
func parseSpace(data []byte) (map[string]*outbidv1.Parameter, error) {
	if strings.TrimSpace(string(data)) == "" {
		return nil, errors.New("the file is empty")
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, errors.New("want parameters by name, as in the space of a sweep's file")
	}
	if _, ok := fields["space"]; !ok || len(fields) > 1 {
		text = slices.Concat([]byte(`{"space":`), text, []byte(`}`))
	}
	wrap := &outbidv1.SweepSpec{}
	if err := protojson.Unmarshal(text, wrap); err != nil {
		return nil, errors.New(protoProblem(err))
	}
	if len(wrap.GetSpace()) == 0 {
		return nil, errors.New("it holds no parameter")
	}
	return wrap.GetSpace(), nil
}

// protoProblem is what protojson complains of, without its position, which is not one in the user's file.
func protoProblem(err error) string {
	msg := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "proto:"), "\u00a0", " ")
	if _, after, ok := strings.Cut(msg, "): "); ok {
		msg = after
	}
	return strings.TrimSpace(msg)
}
