package worker

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
)

// A worker that reaches its store by itself has averages computed in another process, which returns the same errors
// as the worker itself would, and ends when the average is no longer wanted.
func TestAveragesAreMadeByASubprocess(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir())
	data := weights(t, "w", 1, 10)
	const key = "checkpoints/s-1/0/000000000160-7.safetensors"
	if err := store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	ck := &outbidv1.Checkpoint{Key: key, Bytes: int64(len(data))}
	order := &outbidv1.Consolidation{Step: 900, Key: averageKey, Sources: []*outbidv1.ConsolidationSource{{Checkpoint: ck, Steps: 1}}}
	made, err := Average(t.Context(), Averaging{}, store, order)
	if err != nil {
		t.Fatal(err)
	}
	mustBe(t, store, made)
	ck.Sha256 = strings.Repeat("0", 64)
	_, err = Average(t.Context(), Averaging{}, store, order)
	var failure *averageFailure
	if !errors.As(err, &failure) || !errors.Is(err, checkpoint.ErrDamaged) || errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("of a damaged checkpoint: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Average(ended, Averaging{}, store, order); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context: %v", err)
	}
}

// The process reaches a bucket with the same credentials.
func TestABucketIsAveragedByASubprocess(t *testing.T) {
	m := startS3(t)
	store := openStore(t, objectstest.URLs(m.Endpoint)())
	ck := putBig(t, store, "checkpoints/s-1/0/000000000100-7.safetensors", 1)
	made, err := Average(t.Context(), Averaging{}, store, &outbidv1.Consolidation{
		Step: 900, Key: averageKey, Sources: []*outbidv1.ConsolidationSource{{Checkpoint: ck, Steps: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	mustBe(t, store, made)
}

// signedStore is a store whose objects a server hands out over TLS for URLs signed by sign. Requests of this process
// fail, so that only another process can average there.
func signedStore(t *testing.T, store objects.Store, sign func(h *objects.Handler, key string, write bool, size int64) (objects.Signed, error)) *asked {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	t.Cleanup(server.Close)
	handler := objects.NewHandler(store, server.URL)
	server.Config.Handler = handler
	here := &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("the worker's own process asks the store")
	})}
	return &asked{
		Presigned: &objects.Presigned{
			Sign: func(_ context.Context, key string, write bool, size int64) (objects.Signed, error) {
				return sign(handler, key, write, size)
			},
			Client: here, Name: func() string { return "a store behind a server" },
		},
		authority: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func signByHandler(h *objects.Handler, key string, write bool, size int64) (objects.Signed, error) {
	if write {
		return h.SignPut(context.Background(), key, size)
	}
	return h.SignGet(context.Background(), key)
}

// A worker without credentials of the store also has averages computed in another process. That requests access to
// each object from the worker, which asks the server, and trusts the authority that the worker trusts.
func TestSignedObjectsAreAveragedByASubprocess(t *testing.T) {
	t.Parallel()
	dir := openStore(t, t.TempDir())
	sources := []*outbidv1.ConsolidationSource{
		{Checkpoint: putBig(t, dir, "checkpoints/s-1/0/000000000100-7.safetensors", 1), Steps: 1},
		{Checkpoint: putBig(t, dir, "checkpoints/s-1/0/000000000100-8.safetensors", 1), Steps: 3},
	}
	order := &outbidv1.Consolidation{Step: 900, Key: averageKey, Sources: sources}
	var asked sync.Map
	store := signedStore(t, dir, func(h *objects.Handler, key string, write bool, size int64) (objects.Signed, error) {
		asked.Store(fmt.Sprint(key, " ", write), size)
		return signByHandler(h, key, write, size)
	})
	made, err := Average(t.Context(), Averaging{}, store, order)
	if err != nil {
		t.Fatal(err)
	}
	mustBe(t, dir, made)
	for what, size := range map[string]int64{
		sources[0].GetCheckpoint().GetKey() + " false": 0, sources[1].GetCheckpoint().GetKey() + " false": 0, averageKey + " true": made.GetBytes(),
	} {
		if got, ok := asked.Load(what); !ok || got != size {
			t.Errorf("asked for %s of %v bytes; want %d", what, got, size)
		}
	}
	store.authority = nil
	if _, err := Average(t.Context(), Averaging{}, store, order); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server with an unknown certificate: %v", err)
	}
}

// The causes of missing access can be distinguished there as here.
func TestRightsThatAreNotGiven(t *testing.T) {
	t.Parallel()
	for name, no := range map[string]error{
		"refused": objects.ErrRefused, "not now": objects.ErrUnavailable, "not there": objects.ErrNotFound,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := openStore(t, t.TempDir())
			ck := putBig(t, dir, "checkpoints/s-1/0/000000000100-7.safetensors", 1)
			store := signedStore(t, dir, func(h *objects.Handler, key string, write bool, size int64) (objects.Signed, error) {
				if write {
					return objects.Signed{}, fmt.Errorf("%w: the server says so", no)
				}
				return signByHandler(h, key, write, size)
			})
			_, err := Average(t.Context(), Averaging{}, store, &outbidv1.Consolidation{
				Step: 900, Key: averageKey, Sources: []*outbidv1.ConsolidationSource{{Checkpoint: ck, Steps: 1}},
			})
			if !errors.Is(err, no) || !strings.Contains(err.Error(), "the server says so") {
				t.Errorf("it says: %v", err)
			}
		})
	}
}

// The process moves to the idle group alone: this process and its trials are not slowed down.
func TestTheSubprocessStepsBack(t *testing.T) {
	t.Parallel()
	c, err := confine.Open(t.Context(), confine.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if c.IdleGroup() == "" {
		t.Skip("this machine has no control groups for CPUs")
	}
	dir := openStore(t, t.TempDir())
	ck := putBig(t, dir, "checkpoints/s-1/0/000000000100-7.safetensors", 1)
	var inside []string
	var waits string
	store := signedStore(t, dir, func(h *objects.Handler, key string, write bool, size int64) (objects.Signed, error) {
		if write {
			text, err := os.ReadFile(filepath.Join(c.IdleGroup(), "cgroup.procs"))
			inside = append(strings.Fields(string(text)), fmt.Sprint(err))
			idle, _ := os.ReadFile(filepath.Join(c.IdleGroup(), "cpu.idle")) // not before Linux 5.15
			waits = string(idle)
		}
		return signByHandler(h, key, write, size)
	})
	began := time.Now()
	made, err := Average(t.Context(), Averaging{Behind: c.IdleGroup()}, store, &outbidv1.Consolidation{
		Step: 900, Key: averageKey, Sources: []*outbidv1.ConsolidationSource{{Checkpoint: ck, Steps: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	mustBe(t, dir, made)
	if len(inside) != 2 || inside[1] != "<nil>" || inside[0] == strconv.Itoa(os.Getpid()) {
		t.Errorf("the group has %v; want one process other than %d", inside, os.Getpid())
	}
	if late := time.Since(began) > 2*time.Second; !late && waits != "1\n" && waits != "" { // later its patience may be over
		t.Errorf("it begins with cpu.idle %q: it would not wait for others", waits)
	}
}
