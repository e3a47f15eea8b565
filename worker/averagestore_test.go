package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/checksum"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// bigWeights returns a checkpoint of mib MiB, most of it one tensor, that is generated as it is read.
func bigWeights(t testing.TB, mib int64) (io.Reader, int64) {
	t.Helper()
	h := safetensors.Header{Tensors: []safetensors.Tensor{
		{Name: "bias", DType: safetensors.BF16, Shape: []int64{1001}, End: 2002},
		{Name: "w", DType: safetensors.F32, Shape: []int64{mib << 18}, Begin: 2002, End: 2002 + mib<<20},
	}}
	header, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i*7) & 0x3b // all finite
	}
	parts := []io.Reader{bytes.NewReader(header), bytes.NewReader(block[:2002])}
	for range mib {
		parts = append(parts, bytes.NewReader(block))
	}
	return io.MultiReader(parts...), int64(len(header)) + 2002 + mib<<20
}

// putBig stores such a checkpoint, and returns its entry for the ledger.
func putBig(t testing.TB, store objects.Store, key string, mib int64) *outbidv1.Checkpoint {
	t.Helper()
	r, size := bigWeights(t, mib)
	h := checksum.New()
	if err := store.Put(t.Context(), key, io.TeeReader(r, h), size); err != nil {
		t.Fatal(err)
	}
	sums := h.Sums()
	return &outbidv1.Checkpoint{Key: key, Step: 100, Bytes: size, Sha256: sums.SHA256, Crc64Nvme: sums.CRC64}
}

// presignedAccess returns the access that a worker without credentials has to a store.
func presignedAccess(store objects.Store) objects.Access {
	signer, _ := store.(objects.Signer)
	return &objects.Presigned{
		Sign: func(ctx context.Context, key string, write bool, size int64) (objects.Signed, error) {
			if write {
				return signer.SignPut(ctx, key, size)
			}
			return signer.SignGet(ctx, key)
		},
		Client: &http.Client{}, Name: store.String,
	}
}

func openStore(t *testing.T, url string) objects.Store {
	t.Helper()
	store, err := objects.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func startS3(t *testing.T) *objectstest.Versity {
	t.Helper()
	m := objectstest.StartVersity(t)
	t.Setenv("AWS_ACCESS_KEY_ID", m.User)
	t.Setenv("AWS_SECRET_ACCESS_KEY", m.Password)
	return m
}

const averageKey = "checkpoints/s-1/0/000000000900-7.safetensors"

// mustBe fails if an object does not match its checkpoint.
func mustBe(t *testing.T, store objects.Store, ck *outbidv1.Checkpoint) {
	t.Helper()
	r, err := store.Get(t.Context(), ck.GetKey())
	if err != nil {
		t.Fatal(err)
	}
	h := checksum.New()
	n, err := io.Copy(h, r)
	known := checksum.Sums{SHA256: ck.GetSha256(), CRC64: ck.GetCrc64Nvme()}
	if err := errors.Join(err, r.Close()); err != nil || n != ck.GetBytes() || h.Sums() != known {
		t.Errorf("%d bytes, %v: they are not those of %v", n, err, ck)
	}
}

// usage is the memory usage of a process in bytes: the most that Go obtained, and the most that was resident.
type usage struct {
	Sys, Resident uint64
	Average       *outbidv1.Checkpoint
}

// averageEnv makes this test's binary compute the average in its value.
const averageEnv = "OUTBID_TEST_AVERAGE"

// averageTask describes an average for another process.
type averageTask struct {
	URL    string
	Source *outbidv1.Checkpoint
	Forks  int
	Signed bool
}

// averageForTest computes an average in its own process, and prints its memory usage.
func averageForTest(text string) error {
	var task averageTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return err
	}
	store, err := objects.Open(context.Background(), task.URL)
	if err != nil {
		return err
	}
	access := objects.Access(store)
	if task.Signed {
		access = presignedAccess(store)
	}
	order := &outbidv1.Consolidation{Step: 900, Key: averageKey}
	for i := range task.Forks {
		order.Sources = append(order.Sources, &outbidv1.ConsolidationSource{Checkpoint: task.Source, Steps: int64(i + 1)})
	}
	var u usage
	if u.Average, err = averageOnce(context.Background(), access, order); err != nil {
		return err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.Sys = m.Sys
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		_, peak, _ := strings.Cut(string(status), "VmHWM:")
		kib, _ := strconv.ParseUint(strings.Fields(peak)[0], 10, 64)
		u.Resident = kib << 10
	}
	return json.NewEncoder(os.Stdout).Encode(u)
}

// Averaging takes less than 256 MiB, however large and many the checkpoints are: here half a GiB each.
func TestMemoryIsBounded(t *testing.T) {
	m := startS3(t)
	bucket := objectstest.URLs(m.Endpoint)()
	for _, c := range []struct {
		name, url string
		forks     int
		signed    bool
	}{
		{"five through S3, signed", bucket, 5, true},
		{"twenty through S3", bucket, 20, false},
		{"five in a directory", t.TempDir(), 5, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			mib := int64(500 / c.forks)
			source := putBig(t, openStore(t, c.url), "checkpoints/s-1/0/000000000100-7.safetensors", mib)
			task, err := json.Marshal(averageTask{URL: c.url, Source: source, Forks: c.forks, Signed: c.signed})
			if err != nil {
				t.Fatal(err)
			}
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), averageEnv+"="+string(task))
			child.Stderr = os.Stderr
			out, err := child.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var u usage
			if err := json.Unmarshal(out, &u); err != nil {
				t.Fatal(err)
			}
			t.Logf("averaging %d x %d MiB took %d MiB of Go's memory, %d MiB resident", c.forks, mib, u.Sys>>20, u.Resident>>20)
			const limit = 256 << 20
			if u.Sys > limit || u.Resident > limit && !raceEnabled {
				t.Errorf("averaging %d x %d MiB took %d MiB, %d MiB resident; want less than %d", c.forks, mib, u.Sys>>20, u.Resident>>20, limit>>20)
			}
			mustBe(t, openStore(t, c.url), u.Average)
		})
	}
}

// tripping is an access to a store that calls trip once, after a number of bytes of one object were read.
type tripping struct {
	objects.Access
	once  *sync.Once
	after int64
	trip  func()
}

func (x tripping) GetRange(ctx context.Context, key string, from, n int64) (io.ReadCloser, error) {
	r, err := x.Access.GetRange(ctx, key, from, n)
	return &trippingReader{ReadCloser: r, at: from, store: x}, err
}

type trippingReader struct {
	io.ReadCloser
	at    int64
	store tripping
}

func (r *trippingReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.at += int64(n); r.at >= r.store.after {
		r.store.once.Do(r.store.trip)
	}
	return n, err
}

// If a store goes away during an average and comes back, it gets the whole average in the end, and never a part of
// it.
func TestAStoreThatEndsInMidAverage(t *testing.T) {
	m := startS3(t)
	store := openStore(t, objectstest.URLs(m.Endpoint)())
	a := putBig(t, store, "checkpoints/s-1/0/000000000100-7.safetensors", 48)
	b := putBig(t, store, "checkpoints/s-1/0/000000000100-8.safetensors", 48)
	middle, again := make(chan struct{}), make(chan struct{})
	access := tripping{presignedAccess(store), new(sync.Once), 40 << 20, func() { close(middle); <-again }}
	w := &workerLoop{cfg: Config{Store: Direct(access)}}
	said := make(chan *outbidv1.Consolidated, 1)
	go func() {
		said <- w.average(t.Context(), &outbidv1.Consolidation{Step: 900, Key: averageKey, Sources: []*outbidv1.ConsolidationSource{
			{Checkpoint: a, Steps: 300}, {Checkpoint: b, Steps: 500},
		}})
	}()
	<-middle
	m.Stop(t)
	m.Start(t)
	if _, err := store.Stat(t.Context(), averageKey); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("a part of an average is stored: %v", err)
	}
	close(again)
	select {
	case done := <-said:
		if done.GetFailure() != "" {
			t.Fatal(done.GetFailure())
		}
		mustBe(t, store, done.GetCheckpoint())
	case <-time.After(2 * time.Minute):
		t.Fatal("the average was not finished")
	}
}
