package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/audit"
	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Target is where to restore.
type Target struct {
	// NATS must not have a ledger.
	NATS *nats.Conn
	// Replicas is the number of copies of streams in a NATS cluster; 0 means 1.
	Replicas int
	// Store gets the objects of a backup that has them; nil leaves them out.
	Store objects.Store
	// Now is the time of a note that ends the ledger, so that the server's time continues from there. NATS's clock would
	// say that the last batch was written just now.
	Now time.Time
	// Progress, if not nil, is called after each thousand batches.
	Progress func(seq uint64)
}

// RestoreKeys writes the cluster's keys of the backup to a directory, which must be empty or missing.
func (f *File) RestoreKeys(ctx context.Context, dir string) error {
	if there, err := os.ReadDir(dir); err == nil && len(there) > 0 {
		return fmt.Errorf("%s contains files: restore the keys into an empty directory", dir)
	}
	for name := range f.Checksums {
		key, ok := strings.CutPrefix(name, keyFolder)
		if !ok {
			continue
		}
		if !filepath.IsLocal(key) {
			return fmt.Errorf("%s of the backup has an invalid name", name)
		}
		data, err := f.checked(ctx, name)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(key))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Restore writes the ledger, its snapshot, streams and objects. A server that is started afterwards continues from the
// pinned batch.
func (f *File) Restore(ctx context.Context, t Target) error {
	js, err := jetstream.New(t.NATS)
	if err != nil {
		return err
	}
	switch found, err := ledger.Exists(ctx, js); {
	case err != nil:
		return err
	case found:
		return errors.New("this NATS already has a ledger: restore into an empty one")
	}
	// Objects come first: a ledger without its checkpoints would repeat steps.
	if err := f.restoreObjects(ctx, t.Store); err != nil {
		return err
	}
	for name := range f.Streams {
		if err := f.restoreStream(ctx, js, name, t.Replicas); err != nil {
			return err
		}
	}
	return f.restoreLedger(ctx, t)
}

func (f *File) restoreLedger(ctx context.Context, t Target) error {
	l, err := ledger.OpenJetStream(ctx, t.NATS, ledger.Config{Replicas: t.Replicas})
	if err != nil {
		return err
	}
	l.Resume(0, nil)
	if err := f.batches(ctx, func(b *outbidv1.Batch) error {
		if t.Progress != nil && b.GetSeq()%1000 == 0 {
			t.Progress(b.GetSeq())
		}
		return l.Import(ctx, b)
	}); err != nil {
		return err
	}
	if f.Snapshot > 0 {
		data, err := f.checked(ctx, snapshotEntry(f.Snapshot))
		if err != nil {
			return err
		}
		if err := l.SaveSnapshot(ctx, f.Snapshot, data); err != nil {
			return err
		}
	}
	if t.Now.Before(f.SeqTime) {
		return nil
	}
	note := &outbidv1.Note{Level: "info", Text: "the cluster was restored from the backup of " + f.Time.Format(time.RFC3339)}
	_, err = l.Append(ctx, t.Now, []*outbidv1.Event{{Kind: &outbidv1.Event_Note{Note: note}}})
	return err
}

// termMargin is added to the sequence number of the leader's bucket, which is the term: leaders may have been elected
// after the backup, and workers ignore orders of a lower term.
const termMargin = 1_000_000_000

func (f *File) restoreStream(ctx context.Context, js jetstream.JetStream, name string, replicas int) error {
	first := true
	return f.lines(ctx, streamFolder+name+".jsonl", func(line []byte) error {
		if first {
			first = false
			var s savedStream
			if err := json.Unmarshal(line, &s); err != nil {
				return err
			}
			s.Config.Replicas, s.Config.FirstSeq = max(replicas, 1), s.Last+1
			switch name {
			case leaderStream:
				s.Config.FirstSeq += termMargin
			case audit.Stream: // the number of a record, which its hash covers, is the sequence number of its message
				s.Config.FirstSeq = s.First
			}
			_, err := bus.CreateStream(ctx, js, s.Config)
			return err
		}
		var m savedMessage
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		_, err := js.PublishMsg(ctx, &nats.Msg{Subject: m.Subject, Header: ownHeader(m.Header), Data: m.Data})
		return err
	})
}

// ownHeader returns a message's header without the conditions of its first writer, and without what NATS adds when it is read. If
// these were stored, a reader would get the sequence number of the old stream.
func ownHeader(h nats.Header) nats.Header {
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		switch name {
		case jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.LastSequenceHeader,
			jetstream.TimeStampHeaer, jetstream.MsgIDHeader, "Nats-Num-Pending":
			return true
		}
		return strings.HasPrefix(name, "Nats-Expected-")
	})
	return h
}

func (f *File) restoreObjects(ctx context.Context, store objects.Store) error {
	if store == nil || !f.Copied {
		return nil
	}
	return f.lines(ctx, objectsEntry, func(line []byte) error {
		var o Object
		if err := json.Unmarshal(line, &o); err != nil {
			return err
		}
		return f.stream(ctx, objectFolder+o.Key, func(r io.Reader) error { return store.Put(ctx, o.Key, r, o.Size) })
	})
}
