package gang_test

import (
	"net"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/gang"
)

// listen listens at a port that is free.
func listen(t *testing.T) (l net.Listener, port int32) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("the address is %v", l.Addr())
	}
	return l, int32(addr.Port)
}

// ports returns two ports that are free, and a listener at each of them.
func ports(t *testing.T, places int32) (g *outbidv1.Gang, control, rendezvous net.Listener) {
	t.Helper()
	g = &outbidv1.Gang{Places: places}
	control, g.ControlPort = listen(t)
	rendezvous, g.Port = listen(t)
	return g, control, rendezvous
}

func closeAll(t *testing.T, listeners ...net.Listener) {
	t.Helper()
	for _, l := range listeners {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGangsOfOneHostHaveDifferentPorts(t *testing.T) {
	t.Parallel()
	g, control, rendezvous := ports(t, 1)
	closeAll(t, control, rendezvous)
	seen := map[int32]bool{}
	for range 3 {
		claimed, release, err := gang.ClaimPorts(g)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = release() })
		if seen[claimed.GetPort()] || claimed.GetPort()-g.GetPort() != claimed.GetControlPort()-g.GetControlPort() {
			t.Errorf("got %v for %v", claimed, g)
		}
		seen[claimed.GetPort()] = true
	}
}

func TestAPortInUseIsNotClaimed(t *testing.T) {
	t.Parallel()
	g, control, rendezvous := ports(t, 1)
	closeAll(t, control) // the training code of another program listens at the rendezvous port
	claimed, release, err := gang.ClaimPorts(g)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release() }()
	if claimed.GetPort() <= g.GetPort() {
		t.Errorf("claimed port %d although %v is open", claimed.GetPort(), rendezvous.Addr())
	}
}

// The nodes of a gang over several nodes know only the first ports.
func TestAGangOverNodesNeedsItsPorts(t *testing.T) {
	t.Parallel()
	g, control, rendezvous := ports(t, 2)
	for _, l := range []net.Listener{control, rendezvous} {
		if _, _, err := gang.ClaimPorts(g); err == nil || !strings.Contains(err.Error(), "ports for the gang are in use: ") {
			t.Errorf("the error is %v", err)
		}
		closeAll(t, l)
	}
	claimed, release, err := gang.ClaimPorts(g)
	if err != nil {
		t.Fatal(err)
	}
	if claimed.GetPort() != g.GetPort() {
		t.Errorf("claimed port %d, want %d", claimed.GetPort(), g.GetPort())
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
