package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// blobAge keeps the tidying away from functions that were sent, and whose sweep may be submitted yet.
const blobAge = time.Hour

// blobBook knows which functions are in use, by whom, and how large they are. What sweeps use is known from them; the
// book itself remembers what was sent lately, and for which no sweep speaks yet.
type blobBook struct {
	control Control
	store   objects.Store
	limits  *Limits
	now     func() time.Time

	mu    sync.Mutex
	sizes map[string]int64
	// sent says when a tenant sent a function, by its SHA-256.
	sent map[string]map[string]time.Time
	// coming is how many bytes a tenant is sending just now.
	coming map[string]int64
}

func newBlobBook(cfg Config) *blobBook {
	return &blobBook{
		control: cfg.Control, store: cfg.Store, limits: cfg.Limits, now: time.Now,
		sizes: map[string]int64{}, sent: map[string]map[string]time.Time{}, coming: map[string]int64{},
	}
}

// hold keeps a function from being tidied away until its sweep is submitted, or for blobAge.
func (b *blobBook) hold(sha, tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent[sha] == nil {
		b.sent[sha] = map[string]time.Time{}
	}
	b.sent[sha][tenant] = b.now()
}

// release says that a sweep of the tenant uses the function: it speaks for it from now on.
func (b *blobBook) release(sha, tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sent[sha], tenant)
	if len(b.sent[sha]) == 0 {
		delete(b.sent, sha)
	}
}

// used is how many bytes the tenant's functions take, and which they are.
func (b *blobBook) used(ctx context.Context, tenant string) (int64, map[string]bool, error) {
	mine := map[string]bool{}
	for sha, tenants := range b.control.Blobs() {
		for _, t := range tenants {
			mine[sha] = mine[sha] || t == tenant
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for sha, tenants := range b.sent {
		if at, ok := tenants[tenant]; ok && b.now().Sub(at) < blobAge {
			mine[sha] = true
		}
	}
	total := int64(0)
	for sha, is := range mine {
		if !is {
			continue
		}
		size, known := b.sizes[sha]
		if !known {
			info, err := b.store.Stat(ctx, objects.BlobKey(sha))
			if err != nil && !errors.Is(err, objects.ErrNotFound) {
				return 0, nil, fmt.Errorf("look for the functions of a tenant: %w", err)
			}
			size = info.Size
			b.sizes[sha] = size
		}
		total += size
	}
	return total, mine, nil
}

// upload counts what one call sends against its tenant's quota.
type upload struct {
	book   *blobBook
	tenant string
	limit  int64
	before int64
	bytes  int64
}

// begin begins an upload; end it. An admin, and whoever speaks for every tenant, has no quota.
func (b *blobBook) begin(ctx context.Context, who Principal) (*upload, error) {
	u := &upload{book: b, tenant: who.Tenant}
	if who.Tenant == AnyTenant || who.Role == RoleAdmin {
		return u, nil
	}
	var err error
	u.limit = LimitOf(b.control, b.limits, who.Tenant).BlobBytes
	u.before, _, err = b.used(ctx, who.Tenant)
	return u, err
}

// more counts so many bytes, unless they are too many.
func (u *upload) more(n int64) error {
	u.book.mu.Lock()
	defer u.book.mu.Unlock()
	if u.limit > 0 && u.before+u.book.coming[u.tenant]+n > u.limit {
		return &state.LimitError{Limit: "blob_bytes", Tenant: u.tenant, Text: fmt.Sprintf("the functions of tenant %s take %d of the %d "+
			"bytes that it may keep, and this one is too many; delete sweeps that are done with", u.tenant, u.before, u.limit)}
	}
	u.bytes += n
	u.book.coming[u.tenant] += n
	return nil
}

// end ends the upload, of which sha is what was stored; empty if nothing was.
func (u *upload) end(sha string) {
	u.book.mu.Lock()
	defer u.book.mu.Unlock()
	if u.book.coming[u.tenant] -= u.bytes; u.book.coming[u.tenant] <= 0 {
		delete(u.book.coming, u.tenant)
	}
	if sha != "" {
		u.book.sizes[sha] = u.bytes
	}
}

// TidyBlobs deletes the functions that no sweep uses and that are older than before, and says how many those were. A
// sweep that has ended may be extended: it uses its function until it is deleted.
func (s *Server) TidyBlobs(ctx context.Context, before time.Time) (int, error) {
	return s.blobs.tidy(ctx, before)
}

// DropBlob deletes a function unless a sweep uses it or it was sent lately.
func (s *Server) DropBlob(ctx context.Context, sha string) error {
	_, err := s.blobs.drop(ctx, sha)
	return err
}

func (b *blobBook) tidy(ctx context.Context, before time.Time) (int, error) {
	var old []string
	err := b.store.List(ctx, "blobs/", func(o objects.Info) bool {
		if o.Modified.Before(before) {
			old = append(old, strings.TrimPrefix(o.Key, "blobs/"))
		}
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("looking for functions that nothing needs: %w", err)
	}
	deleted := 0
	for _, sha := range old {
		gone, err := b.drop(ctx, sha)
		if err != nil {
			return deleted, err
		}
		if gone {
			deleted++
		}
	}
	return deleted, nil
}

// drop deletes a function unless a sweep uses it or it was sent lately. Who sends it meanwhile waits.
func (b *blobBook) drop(ctx context.Context, sha string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for tenant, at := range b.sent[sha] {
		if b.now().Sub(at) < blobAge {
			return false, nil
		}
		delete(b.sent[sha], tenant)
	}
	delete(b.sent, sha)
	if len(b.control.Blobs()[sha]) > 0 {
		return false, nil
	}
	if err := b.store.Delete(ctx, objects.BlobKey(sha)); err != nil {
		return false, fmt.Errorf("deleting a function that nothing needs: %w", err)
	}
	delete(b.sizes, sha)
	return true, nil
}
