package state

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Format of the ledgers that this version writes. It is incremented if an earlier version would compute another state
// from the ledger without an error. firstFormat is the format of 1.0.0-rc.1; lower ones were never released.
const (
	Format      = 4
	firstFormat = 4
)

// ErrNewer means that a newer version wrote the ledger, and this version cannot read it.
var ErrNewer = errors.New("a newer version of Outbid wrote this ledger")

// ErrUnreleased means that a version before 1.0.0-rc.1 wrote the ledger.
var ErrUnreleased = errors.New("a version of Outbid before the first release wrote this ledger")

// checkFormat rejects the formats of newer versions and of versions before the first release.
func checkFormat(format uint32, version string) error {
	if version != "" {
		version = " by version " + version
	}
	switch {
	case format < firstFormat:
		return fmt.Errorf("%w%s: its format is %d, and this version reads formats from %d; export its results with the "+
			"version that wrote it, and start with a new data directory", ErrUnreleased, version, format, firstFormat)
	case format <= Format:
		return nil
	}
	return fmt.Errorf("%w%s: its format is %d, and this version reads formats up to %d; use the newer version: nothing "+
		"was changed", ErrNewer, version, format, Format)
}

// started records a server that begins to lead.
func (f *foldContext) started(e *outbidv1.OrchestratorStarted) error {
	if err := checkFormat(e.GetFormat(), e.GetVersion()); err != nil {
		return err
	}
	f.st.Decider = e.GetPolicy()
	return nil
}

// CheckReadable returns an ErrNewer or ErrUnreleased if this version cannot read an event.
func CheckReadable(event *outbidv1.Event) error {
	if event.GetKind() == nil {
		return errUnknown(event)
	}
	if started := event.GetOrchestratorStarted(); started != nil {
		return checkFormat(started.GetFormat(), started.GetVersion())
	}
	return nil
}

// errUnknown returns the error for an event of an unknown kind. Such an event must not be skipped.
func errUnknown(event *outbidv1.Event) error {
	kind, _, _ := protowire.ConsumeTag(event.ProtoReflect().GetUnknown())
	return fmt.Errorf("%w: it holds an event of a kind that this version does not know (%d); use the newer version: "+
		"nothing was changed", ErrNewer, max(kind, 0))
}
