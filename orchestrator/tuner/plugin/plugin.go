// Package plugin connects tuners that run in separate processes, as programs that serve TunerService over
// hashicorp/go-plugin. Serve runs a Go tuner as such a program; Launch starts a program and returns it as a
// tuner.Tuner.
//
// Answers of a plugin are always validated. A violation of the tuner contract, a crash and a timeout become errors that
// name the plugin.
package plugin

import (
	"fmt"
	"os"

	"google.golang.org/grpc"

	"github.com/outbid-dev/outbid/orchestrator/pluginhost"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// protocol is the version of TunerService that both sides use.
const protocol = pluginhost.Protocol

// A Factory creates the tuner that a plugin serves.
type Factory struct {
	// Name and Version are shown to users.
	Name, Version string
	// New returns the tuner of a new sweep; Restore returns it in the state of a snapshot. The sweep's settings for the
	// plugin are in Spec.Tuner.Plugin.Settings.
	New     func(tuner.Settings) (tuner.Tuner, error)
	Restore func(tuner.Settings, []byte) (tuner.Tuner, error)
}

// Serve is the main function of a plugin written in Go. It returns when the orchestrator disconnects. The plugin must
// not write to standard output before; standard error goes to the orchestrator's log.
func Serve(f Factory) {
	// go-plugin replaces the process's os.Stderr.
	stderr := os.Stderr
	pluginhost.Serve(pluginhost.Tuner, func(registrar grpc.ServiceRegistrar) {
		s := &server{factory: f, stderr: stderr}
		if conn, err := pluginhost.ChannelToServer(); err != nil {
			fmt.Fprintln(stderr, err) // gRPC remains
		} else if conn != nil {
			s.channel = true
			go func() {
				if err := serveChannel(conn, s); err != nil {
					fmt.Fprintln(stderr, err)
				}
			}()
		}
		outbidv1.RegisterTunerServiceServer(registrar, s)
	})
}

// name returns the plugin's name for errors and logs.
func name(command []string) string { return fmt.Sprintf("tuner plugin %s", command[0]) }
