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

// blobAge protects an uploaded function from garbage collection while its sweep may still be submitted.
const blobAge = time.Hour

// blobBook tracks the functions in use, their tenants and their sizes. It derives the uses from the sweeps, and
// remembers recent uploads that no sweep refers to yet.
type blobBook struct {
	control Control
	store   objects.Store
	limits  *Limits
	now     func() time.Time

	mu    sync.Mutex
	sizes map[string]int64
	// sent maps a function's SHA-256 and a tenant to the time of the upload.
	sent map[string]map[string]time.Time
	// coming is the number of bytes of each tenant's uploads in progress.
	coming map[string]int64
}

func newBlobBook(cfg Config) *blobBook {
	return &blobBook{
		control: cfg.Control, store: cfg.Store, limits: cfg.Limits, now: time.Now,
		sizes: map[string]int64{}, sent: map[string]map[string]time.Time{}, coming: map[string]int64{},
	}
}

// protect protects a function from garbage collection until its sweep is submitted, for at most blobAge.
func (b *blobBook) protect(sha, tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent[sha] == nil {
		b.sent[sha] = map[string]time.Time{}
	}
	b.sent[sha][tenant] = b.now()
}

// release ends the protection, because a sweep of the tenant now refers to the function.
func (b *blobBook) release(sha, tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sent[sha], tenant)
	if len(b.sent[sha]) == 0 {
		delete(b.sent, sha)
	}
}

// usage returns the size of the tenant's functions in bytes, and the set of their SHA-256 sums.
func (b *blobBook) usage(ctx context.Context, tenant string) (int64, map[string]bool, error) {
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
				return 0, nil, fmt.Errorf("list the functions of a tenant: %w", err)
			}
			size = info.Size
			b.sizes[sha] = size
		}
		total += size
	}
	return total, mine, nil
}

// upload counts the bytes of one call against its tenant's quota.
type upload struct {
	book   *blobBook
	tenant string
	limit  int64
	before int64
	bytes  int64
}

// begin starts an upload; the caller must call end. Admins and callers for every tenant do not have a quota.
func (b *blobBook) begin(ctx context.Context, who Principal) (*upload, error) {
	u := &upload{book: b, tenant: who.Tenant}
	if who.Tenant == AnyTenant || who.Role == RoleAdmin {
		return u, nil
	}
	var err error
	u.limit = LimitOf(b.control, b.limits, who.Tenant).BlobBytes
	u.before, _, err = b.usage(ctx, who.Tenant)
	return u, err
}

// add counts n bytes, or returns an error if the quota does not allow them.
func (u *upload) add(n int64) error {
	u.book.mu.Lock()
	defer u.book.mu.Unlock()
	if u.limit > 0 && u.before+u.book.coming[u.tenant]+n > u.limit {
		return &state.LimitError{Limit: "blob_bytes", Tenant: u.tenant, Text: fmt.Sprintf("tenant %s stores %d of at most %d bytes "+
			"of functions, and this one exceeds the limit; delete sweeps that are no longer needed", u.tenant, u.before, u.limit)}
	}
	u.bytes += n
	u.book.coming[u.tenant] += n
	return nil
}

// end ends the upload. sha is the sum of the stored function, or empty if nothing was stored.
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

// TidyBlobs deletes the functions that no sweep uses and that were uploaded before the given time. It returns their
// number. A sweep that has ended may be extended, so it uses its function until it is deleted.
func (s *Server) TidyBlobs(ctx context.Context, before time.Time) (int, error) {
	return s.blobs.tidy(ctx, before)
}

// DropBlob deletes a function unless a sweep uses it or it was uploaded recently.
func (s *Server) DropBlob(ctx context.Context, sha string) error {
	_, err := s.blobs.deleteUnused(ctx, sha)
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
		return 0, fmt.Errorf("list unused functions: %w", err)
	}
	deleted := 0
	for _, sha := range old {
		gone, err := b.deleteUnused(ctx, sha)
		if err != nil {
			return deleted, err
		}
		if gone {
			deleted++
		}
	}
	return deleted, nil
}

// deleteUnused deletes a function unless a sweep uses it or it was uploaded recently. It holds the lock throughout, so uploads
// of the function wait.
func (b *blobBook) deleteUnused(ctx context.Context, sha string) (bool, error) {
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
		return false, fmt.Errorf("delete an unused function: %w", err)
	}
	delete(b.sizes, sha)
	return true, nil
}
