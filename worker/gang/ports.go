package gang

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// portsTried is how many ports from a gang's first one may be chosen on the host of rank 0.
const portsTried = 8

// ClaimPorts makes sure that no other gang of this host uses the same rendezvous port, for a gang of a program whose
// rank 0 runs here. It listens at the gang's control port until release is called, because the rendezvous port belongs
// to the process that does. If that port or the rendezvous port is in use, a gang on one node gets later ports. The
// nodes of a gang over several nodes know only the first ones, so that it cannot start here.
func ClaimPorts(g *outbidv1.Gang) (claimed *outbidv1.Gang, release func() error, err error) {
	tried := int32(portsTried)
	if g.GetPlaces() > 1 {
		tried = 1
	}
	var errs []error
	for i := range tried {
		held, err := claimPorts(g.GetControlPort()+i, g.GetPort()+i)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		claimed = proto.CloneOf(g)
		claimed.ControlPort, claimed.Port = g.GetControlPort()+i, g.GetPort()+i
		return claimed, held.Close, nil
	}
	return nil, nil, fmt.Errorf("ports for the gang are in use: %w", errors.Join(errs...))
}

// claimPorts listens at a control port, provided that the rendezvous port is free.
func claimPorts(control, rendezvous int32) (net.Listener, error) {
	held, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(int(control))))
	if err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(int(rendezvous))))
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	if err := free.Close(); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}
