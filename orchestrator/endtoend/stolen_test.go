package endtoend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// thief holds a worker's key, like an attacker who controls a whole machine.
type thief struct {
	nc      *nats.Conn
	who     *identity.Credentials
	refused chan error
}

func (s *stronghold) thief(t *testing.T, node string) *thief {
	t.Helper()
	who, err := identity.ReadCredentials(s.credentials(node))
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(filepath.Join(s.dir, "tls", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	th := &thief{who: who, refused: make(chan error, 100)}
	options := append(who.Options(), nats.Secure(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { th.refused <- err }))
	if th.nc, err = nats.Connect(s.nats, options...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(th.nc.Close)
	return th
}

// mustRefuse fails unless NATS rejects what do does.
func (th *thief) mustRefuse(t *testing.T, what string, do func() error) {
	t.Helper()
	for len(th.refused) > 0 {
		<-th.refused
	}
	if err := do(); err != nil && !errors.Is(err, nats.ErrPermissionViolation) {
		t.Fatalf("%s: %v", what, err)
	}
	if err := th.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-th.refused:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(patience):
		t.Errorf("%s: NATS permitted it", what)
	}
}

// TestAWorkersKeyOpensNothingButItsOwn checks that the holder of a worker's key can send messages only as that worker,
// and can access only the objects of its trials.
func TestAWorkersKeyOpensNothingButItsOwn(t *testing.T) {
	t.Parallel()
	s := newStronghold(t)
	ada := s.as(t, "ada")
	victim, _, _ := s.victim(t, ada, openDir(t))
	trial := ada.trials(victim)[0]
	node, other := trial.GetNode(), "gpu-1"
	if node == other {
		other = "gpu-2"
	}
	th := s.thief(t, other)
	for what, subject := range map[string]string{
		"order programs on the other worker": bus.OrdersSubject(node),
		"order programs on its own worker":   bus.OrdersSubject(other),
		"speak for the other worker":         bus.UplinkSubject(node),
		"ask for the other worker's objects": bus.AccessSubject(node),
		"write into the ledger":              "outbid.v1.ledger",
		"remove the ledger":                  "$JS.API.STREAM.DELETE." + ledger.DefaultStream,
		"purge the ledger":                   "$JS.API.STREAM.PURGE." + ledger.DefaultStream,
		"read the ledger":                    "$JS.API.STREAM.MSG.GET." + ledger.DefaultStream,
		"make a consumer of the ledger":      "$JS.API.CONSUMER.CREATE." + ledger.DefaultStream,
		"read who belongs to the cluster":    "$JS.API.DIRECT.GET.KV_" + bus.WorkersBucket,
		"forge the logs of the other worker": "outbid.v1.logs." + node + "." + victim + ".0",
	} {
		th.mustRefuse(t, what, func() error { return th.nc.Publish(subject, []byte("{}")) })
	}
	for what, subject := range map[string]string{
		"hear everything": ">", "hear the other worker's orders": bus.OrdersSubject(node), "hear what workers say": "outbid.v1.up.*",
		"hear others' answers": "_INBOX.>", "hear the other worker's answers": "_INBOX_" + node + ".>",
	} {
		th.mustRefuse(t, what, func() error {
			_, err := th.nc.SubscribeSync(subject)
			return err
		})
	}
	js, err := jetstream.New(th.nc)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := js.Stream(short, ledger.DefaultStream); err == nil {
		t.Error("it reads the ledger's stream")
	}
	s.mustRefuseObjects(t, th, other, victim, trial)
}

// mustRefuseObjects requests objects of another worker's trial in the name of a worker.
func (s *stronghold) mustRefuseObjects(t *testing.T, th *thief, node, victim string, trial *outbidv1.Trial) {
	t.Helper()
	key := trial.GetCheckpoints()[0].GetKey()
	text := strings.TrimSuffix(key[strings.LastIndex(key, "-")+1:], ".ckpt")
	leaseID, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	for what, req := range map[string]*outbidv1.AccessRequest{
		"read another trial's checkpoint": {Fork: &outbidv1.ForkRef{Sweep: victim, LeaseId: leaseID}, Key: key},
		"overwrite another trial's":       {Fork: &outbidv1.ForkRef{Sweep: victim, LeaseId: leaseID}, Key: key, Write: true, Bytes: 4},
		"write a function":                {Fork: &outbidv1.ForkRef{Sweep: victim, LeaseId: leaseID}, Key: "blobs/" + strings.Repeat("0", 64), Write: true, Bytes: 4},
		"read for a trial of nobody's":    {Fork: &outbidv1.ForkRef{Sweep: "none-1", LeaseId: 1}, Key: key},
	} {
		req.Node = node
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		answer, err := bus.RequestAccess(ctx, th.nc, req, th.who.Key(), nil)
		cancel()
		if err != nil || answer.GetRefused() == "" || answer.GetObject() != nil {
			t.Errorf("%s: %v, %v", what, answer, err)
		}
	}
}
