package server

import (
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/bus"
)

func TestRoom(t *testing.T) {
	t.Parallel()
	r := &room{}
	if r.full() != "" {
		t.Error("it is full before it has looked")
	}
	for name, c := range map[string]struct {
		all  []bus.Storage
		full string
	}{
		"nothing is known":    {nil, ""},
		"no limit":            {[]bus.Storage{{Server: "a", Used: 1 << 50}}, ""},
		"room":                {[]bus.Storage{{Server: "a", Used: 94, Limit: 100}}, ""},
		"no room":             {[]bus.Storage{{Server: "a", Used: 95 << 30, Limit: 100 << 30}}, "server a stores 95 GiB of at most 100 GiB"},
		"none on one of many": {[]bus.Storage{{Server: "a", Used: 1, Limit: 100}, {Server: "b", Used: 99, Limit: 100}}, "server b"},
	} {
		if r.update(c.all); (r.full() == "") != (c.full == "") || !strings.Contains(r.full(), c.full) {
			t.Errorf("%s: %q", name, r.full())
		}
	}
}
