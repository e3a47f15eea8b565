package cli

import (
	"google.golang.org/grpc/codes"
	"sigs.k8s.io/yaml"

	"github.com/outbid-dev/outbid/orchestrator/spec"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// specFile is a parsed sweep file.
type specFile struct {
	name string
	data []byte
	spec *outbidv1.SweepSpec
	// hasTuner is set if the file names a tuner.
	hasTuner bool
}

// readSpec reads a sweep's file; "-" is standard input.
func (sw *sweepCommands) readSpec(name string) (*specFile, error) {
	data, err := sw.readFile(name)
	if err != nil {
		return nil, err
	}
	f := &specFile{name: name, data: data}
	if f.spec, err = spec.Parse(data); err != nil {
		return nil, badInput("%s: %w", name, err)
	}
	var written struct {
		Tenant *string        `json:"tenant"`
		Tuner  map[string]any `json:"tuner"`
	}
	if err := yaml.Unmarshal(data, &written); err != nil {
		f.hasTuner = true
		return f, nil //nolint:nilerr // Parse has accepted the file, so ignore fields that this reader does not know
	}
	if written.Tenant == nil {
		// Without a tenant in the file, the server derives it from the token.
		f.spec.Tenant = ""
	}
	delete(written.Tuner, "seed")
	delete(written.Tuner, "points")
	f.hasTuner = len(written.Tuner) > 0
	return f, nil
}

// locate adds the position in the file to a server's error about a field.
func (f *specFile) locate(err error) error {
	s, ok := grpcStatus(err)
	if !ok || s.Code() != codes.InvalidArgument {
		return err
	}
	if answer := spec.Locate(f.data, s.Message()); answer != s.Message() {
		return &exitError{code: exitUsage, msg: f.name + ": " + answer, err: err}
	}
	return err
}
