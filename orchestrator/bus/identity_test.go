package bus

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// realm is a NATS server that admits users signed by a cluster's keys, with two workers that have joined.
type realm struct {
	keys    *identity.Keys
	url     string
	admin   *nats.Conn
	workers *Workers
	who     map[string]*identity.Credentials
}

func makeKeys(t *testing.T) *identity.Keys {
	t.Helper()
	keys, err := identity.MakeKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func newRealm(t *testing.T, keys *identity.Keys, url string) *realm {
	t.Helper()
	return newRealmWith(t, keys, url, WorkersConfig{})
}

func newRealmWith(t *testing.T, keys *identity.Keys, url string, cfg WorkersConfig) *realm {
	t.Helper()
	admin, err := keys.Orchestrator()
	if err != nil {
		t.Fatal(err)
	}
	r := &realm{keys: keys, url: url, who: map[string]*identity.Credentials{}}
	r.admin = connect(t, ConnConfig{URL: url, User: admin})
	if r.workers, err = OpenWorkers(testContext(t), r.admin, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.workers.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, node := range []string{"n1", "n2"} {
		r.join(t, node)
	}
	return r
}

func (r *realm) join(t *testing.T, node string) {
	t.Helper()
	who, err := r.keys.Worker(node, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.workers.Add(testContext(t), node, who.Public(), time.Now()); err != nil {
		t.Fatal(err)
	}
	r.who[node] = who
}

// external starts a NATS server from a configuration file that includes the output of Keys.NATSConfig.
func external(t *testing.T, keys *identity.Keys) string {
	t.Helper()
	s, _ := externalServer(t, keys)
	return s.ClientURL()
}

// externalServer returns the server, and a function that rewrites its configuration.
func externalServer(t *testing.T, keys *identity.Keys) (*server.Server, func()) {
	t.Helper()
	dir := t.TempDir()
	write := func() { writeConfig(t, dir, keys) }
	write()
	opts, err := server.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("NATS does not start")
	}
	return s, write
}

// writeConfig writes nats.conf and the file that it includes.
func writeConfig(t *testing.T, dir string, keys *identity.Keys) {
	t.Helper()
	auth, err := keys.NATSConfig()
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		"auth.conf": string(auth),
		"nats.conf": "listen: 127.0.0.1:-1\njetstream { store_dir: '" + dir + "/store', sync_interval: always }\ninclude 'auth.conf'\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAWorkersCredentialsOpenItsOwnSubjectsAlone checks, on the embedded and a separate server, that a worker can use
// only its own subjects.
func TestAWorkersCredentialsOpenItsOwnSubjectsAlone(t *testing.T) {
	t.Parallel()
	inBothRealms(t, func(t *testing.T, r *realm) {
		t.Helper()
		r.ownSubjects(t)
		r.nothingElse(t)
	})
}

// inBothRealms runs a check with the embedded server and with a separate one.
func inBothRealms(t *testing.T, check func(*testing.T, *realm)) {
	t.Helper()
	for name, start := range map[string]func(*testing.T, *identity.Keys) string{
		"inside": func(t *testing.T, keys *identity.Keys) string {
			t.Helper()
			return startServer(t, ServerConfig{Keys: keys}).URL()
		},
		"of its own": external,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := makeKeys(t)
			check(t, newRealm(t, keys, start(t, keys)))
		})
	}
}

func (r *realm) ownSubjects(t *testing.T) {
	t.Helper()
	nc := connect(t, ConnConfig{URL: r.url, User: r.who["n1"]})
	ups := make(chan *outbidv1.Uplink, 1)
	if _, err := SubscribeUplinks(r.admin, r.workers.Check, func(up *outbidv1.Uplink) { ups <- up }); err != nil {
		t.Fatal(err)
	}
	if err := PublishUplink(nc, uplink("n1", 3), r.who["n1"].Key()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(uplink("n1", 3), receive(t, ups), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	by, err := identity.NewVerifier(r.keys.Orders().Public())
	if err != nil {
		t.Fatal(err)
	}
	orders := make(chan *outbidv1.Orders, 1)
	if _, err := SubscribeOrders(nc, "n1", by.Message, func(o *outbidv1.Orders) { orders <- o }); err != nil {
		t.Fatal(err)
	}
	if err := PublishOrders(r.admin, &outbidv1.Orders{Node: "n1", Generation: 1}, r.keys.Orders()); err != nil {
		t.Fatal(err)
	}
	if o := receive(t, orders); o.GetGeneration() != 1 {
		t.Errorf("got %v", o)
	}
}

func (r *realm) nothingElse(t *testing.T) {
	t.Helper()
	refused := make(chan string, 100)
	nc := connect(t, ConnConfig{URL: r.url, User: r.who["n1"]})
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- strings.ToLower(err.Error()) })
	for _, subject := range []string{
		"outbid.v1.up.n2", "outbid.v1.orders.n1", "outbid.v1.orders.n2", "outbid.v1.access.n2", "outbid.v1.logs.n2.s-1.0",
		"outbid.v1.logs.s-1.0", "outbid.v1.logs.n1.s-1", "outbid.v1.ledger", "$KV." + WorkersBucket + ".node.n1", "$KV." + LeaderBucket + ".leader",
		"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.DELETE.OUTBID_LEDGER", "$JS.API.STREAM.MSG.GET.OUTBID_LEDGER",
		"$JS.API.CONSUMER.CREATE.OUTBID_LEDGER", "$JS.API.STREAM.INFO.KV_" + WorkersBucket, "$SYS.REQ.ACCOUNT.PING.CONNZ",
		"_INBOX_n2.x", "_INBOX.x",
	} {
		if err := nc.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if text := receive(t, refused); !strings.Contains(text, `permissions violation for publish to "`+strings.ToLower(subject)) {
			t.Errorf("publishing on %s was not refused: %q", subject, text)
		}
	}
	for _, subject := range []string{
		"outbid.v1.orders.n2", "outbid.v1.orders.*", "outbid.v1.up.*", "outbid.v1.>", ">", "_INBOX.>", "_INBOX_n2.>", "$JS.>", "$KV.>",
		"outbid.v1.logs.>", "$SYS.>",
	} {
		sub, err := nc.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		if text := receive(t, refused); !strings.Contains(text, `permissions violation for subscription to "`+strings.ToLower(subject)) {
			t.Errorf("subscribing to %s was not refused: %q", subject, text)
		}
		_ = sub.Unsubscribe()
	}
	short, cancel := context.WithTimeout(testContext(t), time.Second)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.KeyValue(short, WorkersBucket); err == nil {
		t.Error("a worker opened the list of workers")
	}
}

func TestOnlyTheServersOrdersAreBelievedAndOnlyOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	nc := connect(t, ConnConfig{URL: s.URL()}) // this user may publish anything
	keys, strangers := makeKeys(t), makeKeys(t)
	by, err := identity.NewVerifier(keys.Orders().Public())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *outbidv1.Orders, 10)
	if _, err := SubscribeOrders(nc, "n1", by.Message, func(o *outbidv1.Orders) { got <- o }); err != nil {
		t.Fatal(err)
	}
	replay, err := nc.SubscribeSync(OrdersSubject("n1"))
	if err != nil {
		t.Fatal(err)
	}
	send := func(generation uint64, by Signer) {
		t.Helper()
		if err := PublishOrders(nc, &outbidv1.Orders{Node: "n1", Term: 1, Generation: generation}, by); err != nil {
			t.Fatal(err)
		}
	}
	send(7, nil)
	send(8, strangers.Orders())
	send(5, keys.Orders())
	if o := receive(t, got); o.GetGeneration() != 5 {
		t.Errorf("took orders %d that the server did not sign", o.GetGeneration())
	}
	var signed *nats.Msg
	for range 3 {
		if signed, err = replay.NextMsg(patience); err != nil {
			t.Fatal(err)
		}
	}
	moved := &nats.Msg{Subject: OrdersSubject("n2"), Data: signed.Data, Header: signed.Header}
	if by.Message(moved.Subject, moved.Data, moved.Header.Get(signatureHeader)) == nil {
		t.Error("a signature is good for another node's subject")
	}
	again := &nats.Msg{Subject: signed.Subject, Data: signed.Data, Header: signed.Header}
	if err := nc.PublishMsg(again); err != nil {
		t.Fatal(err)
	}
	send(6, keys.Orders())
	if o := receive(t, got); o.GetGeneration() != 6 {
		t.Errorf("orders %d were taken a second time", o.GetGeneration())
	}
}

func TestUplinksAreBelievedOfThemselvesAlone(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	s := startServer(t, ServerConfig{Keys: keys})
	r := newRealm(t, keys, s.URL())
	got := make(chan *outbidv1.Uplink, 10)
	if _, err := SubscribeUplinks(r.admin, r.workers.Check, func(up *outbidv1.Uplink) { got <- up }); err != nil {
		t.Fatal(err)
	}
	// Even a user that may publish anything cannot send messages as a worker, and one worker cannot as another.
	for _, by := range []Signer{nil, r.who["n2"].Key(), keys.Orders()} {
		if err := PublishUplink(r.admin, uplink("n1", 1), by); err != nil {
			t.Fatal(err)
		}
	}
	if err := PublishUplink(r.admin, uplink("n1", 2), r.who["n1"].Key()); err != nil {
		t.Fatal(err)
	}
	if up := receive(t, got); up.GetFirstSeq() != 2 {
		t.Errorf("believed %v", up)
	}
}

func TestARemovedWorkerIsCutOffAndBelievedNothing(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	s := startServer(t, ServerConfig{Keys: keys})
	r := newRealmWith(t, keys, s.URL(), WorkersConfig{Gone: func(public string) {
		token, err := keys.Revoke(public, time.Now())
		if err == nil {
			err = s.Revoke(token)
		}
		if err != nil {
			t.Error(err)
		}
	}})
	kept := r.workers
	nc := connect(t, ConnConfig{URL: s.URL(), User: r.who["n1"]})
	cut := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	other := connect(t, ConnConfig{URL: s.URL(), User: r.who["n2"]})
	if err := r.workers.Remove(testContext(t), "n1"); err != nil {
		t.Fatal(err)
	}
	receive(t, cut)
	if err := kept.Check(UplinkSubject("n1"), nil, ""); !errors.Is(err, ErrStranger) {
		t.Errorf("it is believed: %v", err)
	}
	if _, err := Connect(testContext(t), ConnConfig{URL: s.URL(), User: r.who["n1"]}); err == nil {
		t.Error("it was let in again")
	}
	if !other.IsConnected() {
		t.Error("another worker was cut off too")
	}
	if err := r.workers.Remove(testContext(t), "n1"); !errors.Is(err, ErrStranger) {
		t.Errorf("removed twice: %v", err)
	}
	r.join(t, "n1") // under the same name with another key
	connect(t, ConnConfig{URL: s.URL(), User: r.who["n1"]})
}

// TestARemovedWorkerIsOutOfANATSOfItsOwnOnceItIsTold checks that a separate NATS rejects removed workers after it
// reloads the file of 'outbid nats init'.
func TestARemovedWorkerIsOutOfANATSOfItsOwnOnceItIsTold(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	s, write := externalServer(t, keys)
	r := newRealm(t, keys, s.ClientURL())
	nc := connect(t, ConnConfig{URL: r.url, User: r.who["n1"]})
	cut := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	if _, err := keys.Revoke(r.who["n1"].Public(), time.Now()); err != nil {
		t.Fatal(err)
	}
	made := time.Now().Unix()
	for time.Now().Unix() == made { // signatures have a resolution of one second
		<-time.After(time.Until(time.Unix(made+1, 0)))
	}
	write()
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	receive(t, cut)
	if _, err := Connect(testContext(t), ConnConfig{URL: r.url, User: r.who["n1"]}); err == nil {
		t.Error("it was let in again")
	}
	connect(t, ConnConfig{URL: r.url, User: r.who["n2"]})
}

func TestATokenIsGoodForOneWorkerOnceUntilItRunsOut(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	r := newRealm(t, keys, startServer(t, ServerConfig{Keys: keys}).URL())
	ctx, now := testContext(t), time.Now()
	token, err := r.workers.NewToken(ctx, "n3", now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for want, try := range map[string]func() (string, error){
		"it is for the worker n3, not for n4": func() (string, error) { return r.workers.Spend(ctx, token, "n4", now) },
		"it expired at":                       func() (string, error) { return r.workers.Spend(ctx, token, "n3", now.Add(time.Hour)) },
		"did not create this token":           func() (string, error) { return r.workers.Spend(ctx, token+"x", "n3", now) },
		"want one from 'outbid worker token'": func() (string, error) { return r.workers.Spend(ctx, "abc", "n3", now) },
	} {
		if _, err := try(); !errors.Is(err, ErrJoinToken) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	// Of many concurrent attempts one joins.
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			_, err := r.workers.Spend(ctx, token, "", now)
			errs <- err
		}()
	}
	joined := 0
	for range cap(errs) {
		if err := receive(t, errs); err == nil {
			joined++
		} else if !errors.Is(err, ErrJoinToken) {
			t.Error(err)
		}
	}
	if joined != 1 {
		t.Errorf("%d workers joined with one token", joined)
	}
	if _, err := r.workers.Spend(ctx, token, "n3", now); err == nil || !strings.Contains(err.Error(), "was already used at") {
		t.Errorf("error %v", err)
	}
	// The record of a token does not allow anyone to join, and is removed eventually.
	entries, err := r.workers.list(ctx, tokenPrefix+"*")
	if err != nil || len(entries) != 1 || strings.Contains(entries[0], token) {
		t.Errorf("kept %v: %v", entries, err)
	}
	if _, err := r.workers.NewToken(ctx, "n5", now.Add(keepUsed+2*time.Hour), now.Add(99*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if entries, err = r.workers.list(ctx, tokenPrefix+"*"); err != nil || len(entries) != 1 {
		t.Errorf("kept %v: %v", entries, err)
	}
}

// TestWorkersAreTheSameForAll checks that two servers, and another holder of the keys, see the same workers and leave
// no consumers behind.
func TestWorkersAreTheSameForAll(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	r := newRealm(t, keys, startServer(t, ServerConfig{Keys: keys}).URL())
	ctx := testContext(t)
	if err := r.workers.Pin(ctx, keys.Orders().Public()); err != nil {
		t.Fatal(err)
	}
	second, err := OpenWorkers(ctx, r.admin, WorkersConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if second.Key("n1") != r.who["n1"].Public() {
		t.Error("the second does not know n1")
	}
	r.join(t, "n1")
	if err := r.workers.Remove(ctx, "n2"); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(patience)
	for second.Key("n1") != r.who["n1"].Public() || second.Key("n2") != "" {
		select {
		case <-deadline:
			t.Fatal("the second does not hear of changes")
		case <-second.changed():
		}
	}
	if err := second.Pin(ctx, makeKeys(t).Orders().Public()); err == nil || !strings.Contains(err.Error(), "--keys") {
		t.Errorf("an orchestrator with other keys: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	js, err := jetstream.New(r.admin)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "KV_"+WorkersBucket)
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Consumers; n != 0 {
		t.Errorf("%d consumers are left", n)
	}
}

// TestStreamsOfOtherKeysAreRefused checks that a server does not start without the ledger of another cluster's keys.
func TestStreamsOfOtherKeysAreRefused(t *testing.T) {
	t.Parallel()
	dir, keys := t.TempDir(), makeKeys(t)
	s, err := StartServer(ServerConfig{Dir: dir, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := keys.Orchestrator()
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(connect(t, ConnConfig{Server: s, User: admin}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(testContext(t), jetstream.StreamConfig{Name: "OUTBID_LEDGER", Subjects: []string{"ledger"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := StartServer(ServerConfig{Dir: dir, Keys: makeKeys(t)}); err == nil || !strings.Contains(err.Error(), "--keys") {
		t.Errorf("with other keys: %v", err)
	}
}

// TestUplinksThatCameBeforeAreDropped checks that recorded uplinks of the current or an earlier boot cannot be
// repeated.
func TestUplinksThatCameBeforeAreDropped(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	r := newRealm(t, keys, startServer(t, ServerConfig{Keys: keys}).URL())
	recorder, err := r.admin.SubscribeSync(UplinkSubject("n1"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *outbidv1.Uplink, 100)
	if _, err := SubscribeUplinks(r.admin, r.workers.Check, func(up *outbidv1.Uplink) { got <- up }); err != nil {
		t.Fatal(err)
	}
	nc := connect(t, ConnConfig{URL: r.url, User: r.who["n1"]})
	says := func(boot string, said uint64) {
		t.Helper()
		if err := PublishUplink(nc, &outbidv1.Uplink{Node: "n1", Boot: boot, Said: said}, r.who["n1"].Key()); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(boot string, said uint64) {
		t.Helper()
		if up := receive(t, got); up.GetBoot() != boot || up.GetSaid() != said {
			t.Fatalf("heard %s %d, want %s %d", up.GetBoot(), up.GetSaid(), boot, said)
		}
	}
	var recorded []*nats.Msg
	for _, boot := range []string{"first", "second"} {
		for said := range uint64(3) {
			says(boot, said+1)
			expect(boot, said+1)
			m, err := recorder.NextMsg(patience)
			if err != nil {
				t.Fatal(err)
			}
			recorded = append(recorded, m)
		}
	}
	for _, m := range recorded { // even by a holder of the worker's key
		if err := nc.PublishMsg(&nats.Msg{Subject: m.Subject, Data: m.Data, Header: m.Header}); err != nil {
			t.Fatal(err)
		}
	}
	says("second", 4)
	expect("second", 4)
}
