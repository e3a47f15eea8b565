package state

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Format of the ledgers that this version writes. It grows when a version before would fold what is written to another
// state, and not where that would fail anyway. 1 is what was written before there were formats; 2 deletes sweeps; 3 says
// the places of a lease without a first one apart; 4 says which nodes are at fault, and excuses trials for that.
const Format = 4

// ErrNewer says that a newer version wrote the ledger, and that this one cannot know what it means.
var ErrNewer = errors.New("a newer version of Outbid wrote this ledger")

// checkFormat refuses what a newer version writes.
func checkFormat(format uint32, version string) error {
	if format <= Format {
		return nil
	}
	if version != "" {
		version = " by version " + version
	}
	return fmt.Errorf("%w%s: its format is %d, and this version reads formats up to %d; go on with the newer version: nothing "+
		"was changed", ErrNewer, version, format, Format)
}

// started takes in that an orchestrator leads.
func (f *folding) started(e *outbidv1.OrchestratorStarted) error {
	if err := checkFormat(e.GetFormat(), e.GetVersion()); err != nil {
		return err
	}
	f.st.Decider = e.GetPolicy()
	return nil
}

// CheckReadable says, as an ErrNewer, whether an event is one that this version cannot understand.
func CheckReadable(event *outbidv1.Event) error {
	if event.GetKind() == nil {
		return errUnknown(event)
	}
	started := event.GetOrchestratorStarted()
	return checkFormat(started.GetFormat(), started.GetVersion())
}

// errUnknown is what an event of a kind is that this version does not know: it is never passed over.
func errUnknown(event *outbidv1.Event) error {
	kind, _, _ := protowire.ConsumeTag(event.ProtoReflect().GetUnknown())
	return fmt.Errorf("%w: it holds an event of a kind that this version does not know (%d); go on with the newer version: "+
		"nothing was changed", ErrNewer, max(kind, 0))
}
