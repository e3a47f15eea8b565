package state

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Format of the ledgers that this version writes. It is incremented if an earlier version would compute another state
// from the ledger without an error. Format 1 is the format before numbering; 2 deletes sweeps; 3 stores all places of
// a lease in one list; 4 records faults of nodes, and excuses trials because of them.
const Format = 4

// ErrNewer means that a newer version wrote the ledger, and this version cannot read it.
var ErrNewer = errors.New("a newer version of Outbid wrote this ledger")

// checkFormat rejects the formats of newer versions.
func checkFormat(format uint32, version string) error {
	if format <= Format {
		return nil
	}
	if version != "" {
		version = " by version " + version
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

// CheckReadable returns an ErrNewer if this version does not know an event.
func CheckReadable(event *outbidv1.Event) error {
	if event.GetKind() == nil {
		return errUnknown(event)
	}
	started := event.GetOrchestratorStarted()
	return checkFormat(started.GetFormat(), started.GetVersion())
}

// errUnknown returns the error for an event of an unknown kind. Such an event must not be skipped.
func errUnknown(event *outbidv1.Event) error {
	kind, _, _ := protowire.ConsumeTag(event.ProtoReflect().GetUnknown())
	return fmt.Errorf("%w: it holds an event of a kind that this version does not know (%d); use the newer version: "+
		"nothing was changed", ErrNewer, max(kind, 0))
}
