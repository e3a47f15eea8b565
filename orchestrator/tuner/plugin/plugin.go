// Package plugin is the boundary for tuners outside the binary: programs that serve TunerService over
// hashicorp/go-plugin. Serve makes such a program of a Go tuner; Launch starts one and makes a tuner.Tuner of it.
//
// Nothing that a plugin says is taken on trust: what breaks the contract of a tuner, a crash, and silence all become
// errors that name the plugin.
package plugin

import (
	"fmt"
	"os"

	"google.golang.org/grpc"

	"github.com/outbid-dev/outbid/orchestrator/pluginhost"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// protocol is the version of TunerService that both sides speak.
const protocol = pluginhost.Protocol

// A Factory is the tuner that a plugin serves.
type Factory struct {
	// Name and Version are shown to users.
	Name, Version string
	// New starts a sweep's tuner, Restore goes on from a snapshot. The plugin's own settings, if the sweep gives any,
	// are in Spec.Tuner.Plugin.Settings.
	New     func(tuner.Settings) (tuner.Tuner, error)
	Restore func(tuner.Settings, []byte) (tuner.Tuner, error)
}

// Serve is the main function of a plugin written in Go. It returns when the orchestrator has no more use for it.
// Nothing may be written to standard output before; standard error goes to the orchestrator's log.
func Serve(f Factory) {
	// go-plugin puts another in the place of the process's own.
	stderr := os.Stderr
	pluginhost.Serve(pluginhost.Tuner, func(registrar grpc.ServiceRegistrar) {
		outbidv1.RegisterTunerServiceServer(registrar, &server{factory: f, stderr: stderr})
	})
}

// name is how errors and logs call a plugin.
func name(command []string) string { return fmt.Sprintf("tuner plugin %s", command[0]) }
