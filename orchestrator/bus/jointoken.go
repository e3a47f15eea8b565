package bus

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// joinPrefix starts every join token, so that users and secret scanners recognise one.
const joinPrefix = "outbid_join_"

// ErrJoinToken means that a worker may not join with a token; its text has the reason.
var ErrJoinToken = errors.New("join token")

// tokenRecord is stored for a join token under its hash. It is not sufficient to join.
type tokenRecord struct {
	Node    string    `json:"node"`
	Expires time.Time `json:"expires"`
	// Used is when a worker joined with it, or zero.
	Used time.Time `json:"used,omitzero"`
}

// keepUsed is how long a used or expired token is remembered, so that errors can explain why it is invalid.
const keepUsed = 24 * time.Hour

func tokenKey(token string) string {
	sum := sha256.Sum256([]byte(token))
	return tokenPrefix + hex.EncodeToString(sum[:])
}

// NewToken creates a token that admits one worker with that name, once, until it expires.
func (w *Workers) NewToken(ctx context.Context, node string, now, expires time.Time) (string, error) {
	if err := CheckToken("node", node); err != nil {
		return "", err
	}
	if err := w.forgetTokens(ctx, now); err != nil {
		w.log.Warn("old join tokens could not be removed", "error", err)
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make a join token: %w", err)
	}
	token := joinPrefix + base64.RawURLEncoding.EncodeToString(raw)
	data, err := json.Marshal(tokenRecord{Node: node, Expires: expires.UTC()})
	if err != nil {
		return "", fmt.Errorf("make a join token: %w", err)
	}
	if _, err := w.kv.Create(ctx, tokenKey(token), data); err != nil {
		return "", fmt.Errorf("make a join token: %w", err)
	}
	return token, nil
}

// Spend uses up a token and returns its node. If named is not empty, it must be that node. Of concurrent calls only one
// succeeds. Invalid tokens are an ErrJoinToken.
func (w *Workers) Spend(ctx context.Context, token, named string, now time.Time) (node string, err error) {
	if !strings.HasPrefix(token, joinPrefix) {
		return "", fmt.Errorf("%w: not a join token: want one from 'outbid worker token', which starts with %s", ErrJoinToken,
			joinPrefix)
	}
	entry, err := w.kv.Get(ctx, tokenKey(token))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return "", fmt.Errorf("%w: this server did not create this token, or it expired long ago", ErrJoinToken)
	}
	if err != nil {
		return "", fmt.Errorf("look up a join token: %w", err)
	}
	var record tokenRecord
	if err := json.Unmarshal(entry.Value(), &record); err != nil {
		return "", fmt.Errorf("look up a join token: %w", err)
	}
	switch {
	case !record.Used.IsZero():
		return "", fmt.Errorf("%w: it was already used at %s; a token is valid for one worker, once", ErrJoinToken,
			record.Used.Format(time.RFC3339))
	case !now.Before(record.Expires):
		return "", fmt.Errorf("%w: it expired at %s", ErrJoinToken, record.Expires.Format(time.RFC3339))
	case named != "" && record.Node != named:
		return "", fmt.Errorf("%w: it is for the worker %s, not for %s", ErrJoinToken, record.Node, named)
	}
	record.Used = now.UTC()
	data, err := json.Marshal(record)
	if err != nil {
		return "", fmt.Errorf("use a join token: %w", err)
	}
	_, err = w.kv.Update(ctx, entry.Key(), data, entry.Revision())
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return "", fmt.Errorf("%w: another worker has just used it; a token is valid for one worker, once", ErrJoinToken)
	}
	if err != nil {
		return "", fmt.Errorf("use a join token: %w", err)
	}
	return record.Node, nil
}

// forgetTokens removes records of tokens that were used or expired long ago.
func (w *Workers) forgetTokens(ctx context.Context, now time.Time) error {
	keys, err := w.list(ctx, tokenPrefix+"*")
	if err != nil {
		return err
	}
	stream, err := w.js.Stream(ctx, "KV_"+WorkersBucket)
	if err != nil {
		return err
	}
	for _, key := range keys {
		entry, err := w.kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		var record tokenRecord
		if json.Unmarshal(entry.Value(), &record) == nil && now.Before(record.Expires.Add(keepUsed)) {
			continue
		}
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(bucketSubject+key)); err != nil {
			return err
		}
	}
	return nil
}
