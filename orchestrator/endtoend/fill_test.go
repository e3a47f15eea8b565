package endtoend

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"
	natsio "github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// sparse is a number of concurrent reports so small that a server would put those of several clients into one batch.
const sparse = 10

// fillFast creates a data directory whose ledger has the given number of reports. Unlike in a server, its NATS does not
// sync each batch, so millions take only minutes. Sparse batches are appended to the ledger without a server, according
// to cfg.
func fillFast(t testing.TB, dir string, reports, each int, cfg ledger.Config) string {
	t.Helper()
	store := filepath.Join(dir, "data", "nats", "store")
	if err := os.MkdirAll(store, 0o700); err != nil {
		t.Fatal(err)
	}
	ns, err := nats.NewServer(&nats.Options{
		ServerName: "outbid", Host: "127.0.0.1", Port: nats.RANDOM_PORT, JetStream: true, StoreDir: store,
		MaxPayload: bus.MaxPayload, NoSigs: true, DisableJetStreamBanner: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	if !ns.ReadyForConnections(patience) {
		t.Fatal("NATS does not start")
	}
	args := []string{"serve", "--nats", ns.ClientURL(), "--store", filepath.Join(dir, "store")}
	s := serve(t, dir, args...)
	began := time.Now()
	told := reports
	if each < sparse {
		told = min(reports, 1000*fillClients)
	}
	id := s.fill("many", told, max(each, sparse))
	s.stop()
	for told < reports { // servers write snapshots of the batches that were appended without one
		n := min(reports-told, 1_000_000)
		appendSparse(t, ns, n, each, cfg)
		told += n
		serve(t, dir, args...).stop()
	}
	t.Logf("%d reports in %s", reports, time.Since(began).Round(time.Second))
	ns.Shutdown()
	ns.WaitForShutdown()
	giveToAccount(t, filepath.Join(dir, "data", "keys"), filepath.Join(store, nats.JetStreamStoreDir))
	return id
}

// giveToAccount gives the streams of a NATS server without accounts to the account of a server's keys.
func giveToAccount(t testing.TB, keys, streams string) {
	t.Helper()
	k, err := identity.OpenKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(streams, "$G"), filepath.Join(streams, k.Account())); err != nil {
		t.Fatal(err)
	}
}

// appendSparse continues the last reports of the trials in a ledger, with each reports per batch.
func appendSparse(t testing.TB, ns *nats.Server, reports, each int, cfg ledger.Config) {
	t.Helper()
	nc, err := natsio.Connect("", natsio.InProcessServer(ns))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ctx := context.Background()
	l, err := ledger.OpenJetStream(ctx, nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	trials, now := lastReports(ctx, t, l)
	batch := make([]*outbidv1.Event, 0, each)
	for i := range reports {
		e := proto.CloneOf(trials[i%len(trials)])
		e.GetTrialReported().GetReport().Step += int64(i/len(trials)) + 1
		if batch = append(batch, e); len(batch) < each && i+1 < reports {
			continue
		}
		if _, err := l.Append(ctx, now, batch); err != nil {
			t.Fatal(err)
		}
		batch = batch[:0]
	}
}

// lastReports returns the last report of each trial in a ledger, and its time. Afterwards the ledger can be appended
// to.
func lastReports(ctx context.Context, t testing.TB, l *ledger.JetStream) (list []*outbidv1.Event, now time.Time) {
	t.Helper()
	end, err := l.Last(ctx)
	if err != nil {
		t.Fatal(err)
	}
	last := map[int32]*outbidv1.Event{}
	const enough = 2000 // batches in which each trial has reported
	if err := l.Read(ctx, end-min(end, enough), func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		for _, e := range events {
			if r := e.GetTrialReported(); r != nil {
				last[r.GetTrial()] = e
			}
		}
		now = b.GetTime().AsTime()
		l.Resume(b.GetSeq(), b.GetHash())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, e := range last {
		list = append(list, e)
	}
	return list, now
}
