package labcli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/sim"
)

// forkCosts parses the costs of a fork slot.
type forkCosts struct{ to *sim.ForkCosts }

// Set implements pflag.Value.
func (f *forkCosts) Set(text string) error {
	parts := strings.Split(text, ",")
	fields := []*time.Duration{&f.to.Upload, &f.to.Average, &f.to.Each}
	if len(parts) != len(fields) {
		return errors.New("want three durations, such as 3s,3s,1s")
	}
	for i, part := range parts {
		d, err := time.ParseDuration(part)
		if err != nil {
			return err
		}
		*fields[i] = d
	}
	return nil
}

// Type implements pflag.Value.
func (f *forkCosts) Type() string { return "durations" }

// String implements pflag.Value.
func (f *forkCosts) String() string {
	if f.to == nil {
		return ""
	}
	return fmt.Sprintf("%s,%s,%s", f.to.Upload, f.to.Average, f.to.Each)
}
