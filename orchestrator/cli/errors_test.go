package cli

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/server"
)

// TestEveryFieldHasItsFlag checks that the error for every field of a server or a worker names the flag that sets it.
func TestEveryFieldHasItsFlag(t *testing.T) {
	t.Parallel()
	root := newTestApp(nil, nil).rootCommand()
	flags := map[string]bool{}
	for _, name := range []string{"up", "serve", "worker"} {
		cmd, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range strings.Fields(cmd.UsageString()) {
			flags[strings.TrimSuffix(field, ",")] = true
		}
	}
	noFlag := map[string]bool{ // fields that the command line sets itself
		"Alone": true, "AnyPort": true, "LeadWait": true, "Policies": true, "WhatIf": true, "Version": true, "Logger": true, "Now": true, "Note": true, "NATS.AnyPort": true, "Reload": true,
		"secrets": true, "decided": true, "NATS.host": true, "NATS.port": true, "Joined": true, "JoinedWith": true,
	}
	var walk func(typ reflect.Type, prefix string)
	walk = func(typ reflect.Type, prefix string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			inner := f.Type
			if inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			path := prefix + f.Name
			switch {
			case !f.IsExported():
			case inner.Kind() == reflect.Struct && strings.HasSuffix(inner.PkgPath(), "orchestrator/server"):
				walk(inner, map[string]string{"NATS": "NATS.", "Trials": "Trials.", "OIDC": "OIDC."}[f.Name])
			case !noFlag[path] && !flags[flagOf(path)]:
				t.Errorf("%s would be called %s, which is no flag of up, serve or worker", path, flagOf(path))
			}
		}
	}
	walk(reflect.TypeFor[server.Config](), "")
	walk(reflect.TypeFor[server.LoneWorkerConfig](), "")
}

func TestErrorsOfAServerHaveTheirExitCodes(t *testing.T) {
	t.Parallel()
	bad := &server.FieldError{Field: "NATS.Listen", Value: "4222", Err: fmt.Errorf("want HOST:PORT")}
	away := &server.UnreachableError{Msg: "NATS is away", Err: context.DeadlineExceeded}
	for _, tc := range []struct {
		err  error
		code int
		text string
	}{
		{bad, exitUsage, "--nats-listen 4222: want HOST:PORT"},
		{fmt.Errorf("opening: %w", bad), exitUsage, "--nats-listen 4222: want HOST:PORT"},
		{away, exitUnreachable, "NATS is away"},
	} {
		if code, text := exitMessage(tc.err); code != tc.code || text != tc.text {
			t.Errorf("%v is explained as %d %q, want %d %q", tc.err, code, text, tc.code, tc.text)
		}
	}
}
