package server

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestAnEarlierPolicyThatCannotBeMadeIsStoodInFor checks that a server starts although an earlier start had options
// that no longer exist.
func TestAnEarlierPolicyThatCannotBeMadeIsStoodInFor(t *testing.T) {
	t.Parallel()
	c := Config{Policy: "tiresias", PolicyOptions: map[string]string{"threshold": "5"}}
	c.setDefaults()
	today, options, err := c.newPolicy()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tiresias("5").GetOptions(), options); diff != "" {
		t.Error(diff)
	}
	then := tiresias("60")
	for _, gone := range []bool{false, true} {
		if gone {
			then.Options["queues"] = "2"
		}
		var log strings.Builder
		p, err := c.earlierPolicy(slog.New(slog.NewTextHandler(&log, nil)))(then)
		if err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(p, today) != gone || strings.Contains(log.String(), "queues=2") != gone {
			t.Errorf("with an option that is no more %v: %+v, and the log says %q", gone, p, log.String())
		}
	}
}

// tiresias returns the settings that a server with this threshold records.
func tiresias(threshold string) *outbidv1.PolicySettings {
	return &outbidv1.PolicySettings{Name: "tiresias", Options: map[string]string{
		"threshold": threshold, "interval": "1m0s", "promote": "0", "unit": "job",
	}}
}
