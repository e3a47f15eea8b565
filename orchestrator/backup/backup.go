// Package backup saves a cluster to one file while it runs, and restores it: the ledger up to a pinned batch, the
// newest snapshot, NATS's other streams and key-value buckets, the cluster's keys, and a list of the store's objects
// or the objects themselves. The output of trials is not saved.
package backup

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Format is the version of the file's format.
const Format = 1

// The entries of the file. Streams, keys and objects have one each, in folders.
const (
	manifestEntry = "manifest.json"
	ledgerEntry   = "ledger.batches"
	objectsEntry  = "objects.jsonl"
	streamFolder  = "streams/"
	keyFolder     = "keys/"
	objectFolder  = "objects/"
)

// Manifest describes a backup. It is the last entry, so a file without it is incomplete.
type Manifest struct {
	Format  int       `json:"format" doc:"version of the file's format"`
	Version string    `json:"version" doc:"version of Outbid that saved it"`
	Time    time.Time `json:"time" doc:"when it was begun"`
	// Seq, Hash and SeqTime identify the last batch of the ledger.
	Seq     uint64    `json:"ledger_seq" doc:"the last batch of the ledger"`
	Hash    string    `json:"ledger_hash" doc:"its hash"`
	SeqTime time.Time `json:"ledger_time" doc:"its time"`
	// Snapshot is the batch of the snapshot, or 0.
	Snapshot uint64 `json:"snapshot_seq" doc:"the batch of the snapshot of the state; 0 for none"`
	// Streams maps the name of each stream to its number of messages. Buckets are streams named KV_BUCKET.
	Streams map[string]int `json:"streams" doc:"messages of each stream; that of a bucket is named KV_BUCKET"`
	Keys    int            `json:"keys" doc:"files with the cluster's keys"`
	// Objects and ObjectBytes count the objects of the store. Copied is set if the backup has their content.
	Objects     int   `json:"objects" doc:"objects in the store"`
	ObjectBytes int64 `json:"object_bytes" doc:"their size"`
	Copied      bool  `json:"objects_copied" doc:"whether the backup contains them"`
	// Checksums maps each other entry to its SHA-256.
	Checksums map[string]string `json:"checksums" doc:"SHA-256 of each entry"`
}

// Object describes an object of the store.
type Object struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
}

// snapshotEntry is the name of the entry with the snapshot after a batch.
func snapshotEntry(seq uint64) string { return fmt.Sprintf("snapshot.%d", seq) }

// writer writes entries and their checksums.
type writer struct {
	zip *zip.Writer
	m   *Manifest
}

// entry writes an entry.
func (w *writer) entry(name string, method uint16, write func(io.Writer) error) error {
	out, err := w.zip.CreateHeader(&zip.FileHeader{Name: name, Method: method, Modified: w.m.Time})
	if err != nil {
		return err
	}
	sum := sha256.New()
	if err := write(io.MultiWriter(out, sum)); err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	w.m.Checksums[name] = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// File is an opened backup.
type File struct {
	Manifest

	zip *zip.ReadCloser
}

// Open opens a backup and reads its manifest.
func Open(path string) (*File, error) {
	z, err := zip.OpenReader(path)
	if err != nil {
		return nil, fmt.Errorf("%s is not a backup, or it is incomplete: %w", path, err)
	}
	f := &File{zip: z}
	data, err := f.read(manifestEntry)
	if err == nil {
		err = json.Unmarshal(data, &f.Manifest)
	}
	if err == nil && f.Format != Format {
		err = fmt.Errorf("its format is %d; this version reads format %d", f.Format, Format)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not a backup of this version: %w", path, err), z.Close())
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return f.zip.Close() }

// Verify reads the whole file and checks every checksum and the chain of the ledger's batches.
func (f *File) Verify(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(f.Checksums)) {
		if err := f.stream(ctx, name, func(r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			return err
		}); err != nil {
			return err
		}
	}
	return f.batches(ctx, func(*outbidv1.Batch) error { return nil })
}

// read returns the content of a small entry without checking its checksum.
func (f *File) read(name string) ([]byte, error) {
	in, err := f.zip.Open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

// checked returns the content of a small entry.
func (f *File) checked(ctx context.Context, name string) (data []byte, err error) {
	err = f.stream(ctx, name, func(r io.Reader) error {
		data, err = io.ReadAll(r)
		return err
	})
	return data, err
}

// stream calls read with the content of an entry, and then checks its checksum.
func (f *File) stream(ctx context.Context, name string, read func(io.Reader) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	in, err := f.zip.Open(name)
	if err != nil {
		return fmt.Errorf("the backup does not have %s: %w", name, err)
	}
	defer in.Close()
	sum := sha256.New()
	all := io.TeeReader(in, sum)
	err = read(all)
	if err == nil {
		_, err = io.Copy(io.Discard, all)
	}
	if err != nil {
		return fmt.Errorf("%s of the backup: %w", name, err)
	}
	return f.compare(name, sum)
}

func (f *File) compare(name string, sum hash.Hash) error {
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.Checksums[name] {
		return fmt.Errorf("%s of the backup is damaged: its SHA-256 is %s, want %s", name, got, f.Checksums[name])
	}
	return nil
}

// batches calls f with every batch of the ledger, verified.
func (f *File) batches(ctx context.Context, each func(*outbidv1.Batch) error) error {
	var prev []byte
	seq := uint64(0)
	err := f.stream(ctx, ledgerEntry, func(r io.Reader) error {
		in := bufio.NewReaderSize(r, 1<<20)
		for {
			b := new(outbidv1.Batch)
			err := protodelim.UnmarshalOptions{MaxSize: -1}.UnmarshalFrom(in, b)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				seq++
				err = errors.Join(ctx.Err(), ledger.Verify(b, seq, prev))
			}
			if err == nil {
				err = each(b)
			}
			if err != nil {
				return err
			}
			prev = b.GetHash()
		}
	})
	if err == nil && (seq != f.Seq || hex.EncodeToString(prev) != f.Hash) {
		err = fmt.Errorf("the ledger of the backup ends with batch %d, want %d", seq, f.Seq)
	}
	return err
}

// lines calls f with each line of an entry.
func (f *File) lines(ctx context.Context, name string, each func([]byte) error) error {
	return f.stream(ctx, name, func(r io.Reader) error {
		in := bufio.NewReaderSize(r, 1<<20)
		for {
			line, err := in.ReadBytes('\n')
			if len(bytes.TrimSpace(line)) > 0 {
				if err := each(line); err != nil {
					return err
				}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}
