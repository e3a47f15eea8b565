package backup

import (
	"archive/zip"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/ledger/archive"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Source is what to save.
type Source struct {
	Ledger ledger.Ledger
	NATS   *nats.Conn
	// Keys is the directory of the cluster's keys, or "" to leave them out.
	Keys string
	// Store is the store of checkpoints, or nil. With Copy its objects are saved, otherwise only their keys and sizes.
	Store objects.Store
	Copy  bool
	// Version is the version of this build.
	Version string
	Now     time.Time
}

// Save writes a backup. It pins the ledger's last batch first, so that everything acknowledged before the call is in
// the backup, and checkpoints that the ledger names are still in the list of objects unless they were deleted since.
func Save(ctx context.Context, out io.Writer, s Source) (*Manifest, error) {
	w := &writer{zip.NewWriter(out), &Manifest{
		Format: Format, Version: s.Version, Time: s.Now.UTC(), Streams: map[string]int{}, Checksums: map[string]string{},
	}}
	for _, save := range []func(context.Context, *writer) error{s.saveLedger, s.saveStreams, s.saveKeys, s.saveObjects} {
		if err := save(ctx, w); err != nil {
			return nil, err
		}
	}
	data, err := json.MarshalIndent(w.m, "", "  ")
	if err != nil {
		return nil, err
	}
	last, err := w.zip.CreateHeader(&zip.FileHeader{Name: manifestEntry, Method: zip.Deflate, Modified: w.m.Time})
	if err == nil {
		_, err = last.Write(data)
	}
	return w.m, errors.Join(err, w.zip.Close())
}

// errPinned ends the reading of the ledger at the pinned batch.
var errPinned = errors.New("the pinned batch was read")

func (s *Source) saveLedger(ctx context.Context, w *writer) error {
	var err error
	var snapshot []byte
	if w.m.Snapshot, snapshot, err = s.Ledger.LoadSnapshot(ctx); err != nil {
		return err
	}
	if w.m.Seq, err = s.Ledger.Last(ctx); err != nil {
		return err
	}
	seq := uint64(0)
	err = w.entry(ledgerEntry, zip.Deflate, func(out io.Writer) error {
		if w.m.Seq == 0 {
			return nil
		}
		err := s.Ledger.Read(ctx, 1, func(b *outbidv1.Batch) error {
			if seq++; b.GetSeq() != seq {
				return fmt.Errorf("batch %d is missing, because its loss was accepted; back up NATS's files instead", seq)
			}
			if _, err := protodelim.MarshalTo(out, b); err != nil {
				return err
			}
			if seq == w.m.Seq {
				w.m.Hash, w.m.SeqTime = hex.EncodeToString(b.GetHash()), b.GetTime().AsTime()
				return errPinned
			}
			return nil
		})
		if errors.Is(err, errPinned) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("the ledger ended at batch %d, want %d", seq, w.m.Seq)
		}
		return err
	})
	if err != nil || snapshot == nil {
		return err
	}
	return w.entry(snapshotEntry(w.m.Snapshot), zip.Deflate, func(out io.Writer) error {
		_, err := out.Write(snapshot)
		return err
	})
}

// savedStream is the first line of a stream's entry.
type savedStream struct {
	Config jetstream.StreamConfig `json:"config"`
	// First and Last are the sequence numbers of its first and its last message. In an empty stream First is Last+1.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// savedMessage is a message of a stream.
type savedMessage struct {
	Subject string      `json:"subject"`
	Header  nats.Header `json:"header,omitempty"`
	Data    []byte      `json:"data"`
}

// isSaved reports whether a stream is saved as it is: the ledger has separate entries, and output is left out.
func isSaved(name string) bool {
	for _, other := range []string{ledger.DefaultStream, ledger.DefaultSnapshots, bus.LogStream(""), bus.LogIntake} {
		if strings.HasPrefix(name, other) {
			return false
		}
	}
	return strings.HasPrefix(name, "OUTBID_") || strings.HasPrefix(name, "KV_OUTBID_")
}

// leaderStream is the stream of the bucket with the leader's lease. Its messages are not saved, because they are about
// processes and about the end of the ledger; its sequence number is, because it is the term.
const leaderStream = "KV_" + bus.LeaderBucket

func (s *Source) saveStreams(ctx context.Context, w *writer) error {
	js, err := jetstream.New(s.NATS)
	if err != nil {
		return err
	}
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if !isSaved(name) {
			continue
		}
		if err := w.entry(streamFolder+name+".jsonl", zip.Deflate, func(out io.Writer) error {
			n, err := saveStream(ctx, js, name, json.NewEncoder(out))
			w.m.Streams[name] = n
			return err
		}); err != nil {
			return err
		}
	}
	return names.Err()
}

// saveStream writes the messages of a stream up to the last one, and returns their number. It leaves no consumer.
func saveStream(ctx context.Context, js jetstream.JetStream, name string, out *json.Encoder) (n int, err error) {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	last := info.State.LastSeq
	if err := out.Encode(savedStream{info.Config, info.State.FirstSeq, last}); err != nil || name == leaderStream {
		return 0, err
	}
	for seq := max(1, info.State.FirstSeq); seq <= last; {
		m, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && m.Sequence > last {
			break
		}
		if err == nil {
			err = out.Encode(savedMessage{m.Subject, ownHeader(m.Header), m.Data})
		}
		if err != nil {
			return n, err
		}
		n, seq = n+1, m.Sequence+1
	}
	return n, nil
}

func (s *Source) saveKeys(_ context.Context, w *writer) error {
	if s.Keys == "" {
		return nil
	}
	return filepath.WalkDir(s.Keys, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(s.Keys, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		w.m.Keys++
		return w.entry(keyFolder+filepath.ToSlash(name), zip.Deflate, func(out io.Writer) error {
			_, err := out.Write(data)
			return err
		})
	})
}

func (s *Source) saveObjects(ctx context.Context, w *writer) error {
	if s.Store == nil {
		return nil
	}
	w.m.Copied = s.Copy
	var all []Object
	if err := s.Store.List(ctx, "", func(o objects.Info) bool {
		if !strings.HasPrefix(o.Key, archive.Folder) { // its batches are saved with the ledger
			all = append(all, Object{o.Key, o.Size})
		}
		return true
	}); err != nil {
		return err
	}
	var kept []Object
	for _, o := range all {
		if s.Copy {
			err := s.copyObject(ctx, w, o)
			if errors.Is(err, objects.ErrNotFound) {
				continue // it was deleted since
			}
			if err != nil {
				return err
			}
		}
		kept = append(kept, o)
		w.m.Objects, w.m.ObjectBytes = w.m.Objects+1, w.m.ObjectBytes+o.Size
	}
	return w.entry(objectsEntry, zip.Deflate, func(out io.Writer) error {
		lines := json.NewEncoder(out)
		for _, o := range kept {
			if err := lines.Encode(o); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Source) copyObject(ctx context.Context, w *writer, o Object) error {
	in, err := s.Store.Get(ctx, o.Key)
	if err != nil {
		return err
	}
	defer in.Close()
	return w.entry(objectFolder+o.Key, zip.Store, func(out io.Writer) error {
		_, err := io.Copy(out, in)
		return err
	})
}
