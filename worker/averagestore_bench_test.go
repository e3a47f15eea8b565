package worker

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"gonum.org/v1/gonum/stat"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// BenchmarkAverageThroughMinio averages five checkpoints of 64 MiB, or of OUTBID_AVERAGE_MIB, like a worker. It
// compares that with reading all five at once and then storing one: `plain`; and with `checked`, which also takes the
// SHA-256 of all of them, as averaging does for checkpoints without another sum: `older`. If others use the cores as
// well, the processor time of the worker and the server says more than the clock.
func BenchmarkAverageThroughMinio(b *testing.B) {
	m := objectstest.StartMinio(b)
	b.Setenv("AWS_ACCESS_KEY_ID", m.User)
	b.Setenv("AWS_SECRET_ACCESS_KEY", m.Password)
	store, err := objects.Open(b.Context(), objectstest.URLs(m.Endpoint)())
	if err != nil {
		b.Fatal(err)
	}
	access := presignedAccess(store)
	mib := int64(64)
	if n, err := strconv.ParseInt(os.Getenv("OUTBID_AVERAGE_MIB"), 10, 64); err == nil {
		mib = n
	}
	order := &outbidv1.Consolidation{Step: 900, Key: averageKey}
	var bytes int64
	for i := range 5 {
		key := fmt.Sprintf("checkpoints/s-1/0/000000000100-%d.safetensors", i)
		ck := putBig(b, store, key, mib)
		order.Sources = append(order.Sources, &outbidv1.ConsolidationSource{Checkpoint: ck, Steps: int64(i + 1)})
		bytes += ck.GetBytes()
	}
	older := proto.CloneOf(order)
	for _, s := range older.GetSources() {
		s.Checkpoint.Crc64Nvme = ""
	}
	ways := []averageWay{
		{"plain", func() error { return plain(b.Context(), access, order, mib, false) }},
		{"average", func() error { _, err := averageOnce(b.Context(), access, order); return err }},
		{"checked", func() error { return plain(b.Context(), access, order, mib, true) }},
		{"older", func() error { _, err := averageOnce(b.Context(), access, older); return err }},
	}
	b.Run("turns", func(b *testing.B) { inTurns(b, ways[0], ways[1]) })
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(bytes)
			server, own := m.Busy(b), ownTime(b)
			for b.Loop() {
				if err := way.once(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((m.Busy(b)-server).Seconds()/float64(b.N), "server-s/op")
			b.ReportMetric((ownTime(b)-own).Seconds()/float64(b.N), "worker-s/op")
		})
	}
}

// averageWay is one way to read five checkpoints and to write one.
type averageWay struct {
	name string
	once func() error
}

// inTurns runs two ways alternately, each first in every other turn, because a server that has run for some seconds
// is slower for both.
func inTurns(b *testing.B, one, other averageWay) {
	b.Helper()
	var took [2][]float64
	for turn := 0; b.Loop(); turn++ {
		for i := range took {
			k := (turn + i) % 2
			began := time.Now()
			if err := []averageWay{one, other}[k].once(); err != nil {
				b.Fatal(err)
			}
			took[k] = append(took[k], time.Since(began).Seconds())
		}
	}
	var means, medians [2]float64
	for k := range took {
		means[k] = stat.Mean(took[k], nil)
		slices.Sort(took[k])
		medians[k] = took[k][len(took[k])/2]
		b.ReportMetric(medians[k], []string{one.name, other.name}[k]+"-s")
	}
	b.ReportMetric(medians[1]/medians[0], "ratio")
	b.ReportMetric(means[1]/means[0], "ratio-of-means")
}

// ownTime returns the processor time of this process.
func ownTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// plain reads all sources at once, then stores as many bytes as one has. With checked it also takes their SHA-256.
func plain(ctx context.Context, store objects.Access, o *outbidv1.Consolidation, mib int64, checked bool) error {
	taken := func() io.Writer {
		if checked {
			return sha256.New()
		}
		return struct{ io.Writer }{io.Discard} // hides ReadFrom, which reads in small pieces
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range o.GetSources() {
		g.Go(func() error {
			r, err := store.Get(ctx, s.GetCheckpoint().GetKey())
			if err != nil {
				return err
			}
			defer r.Close() //nolint:errcheck // only read
			_, err = io.CopyBuffer(taken(), r, make([]byte, 1<<20))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	stored := io.TeeReader(zeros{}, taken())
	return store.Put(context.WithoutCancel(ctx), "checkpoints/s-1/0/000000000901-7.safetensors", stored, mib<<20)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
