package objects

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/minio/minio-go/v7"
)

const (
	// minPart is the minimum size of a part, in bytes, except the last; S3 requires 5 MiB. Smaller objects are stored
	// whole.
	minPart = 16 << 20
	// maxParts limits the answer, which has a URL of some hundred bytes for each part; S3 allows 10,000.
	maxParts = 2000
	// mostParts is the limit of S3.
	mostParts = 10_000
	// streamedAtOnce is how many parts of a stream are buffered and stored concurrently.
	streamedAtOnce = 4
	// maxKeptPart is the largest part that is buffered for a retry, in bytes.
	maxKeptPart = 32 << 20
)

// SignGet implements Signer.
func (s *S3) SignGet(ctx context.Context, key string) (Signed, error) {
	if err := CheckKey(key); err != nil {
		return Signed{}, err
	}
	u, err := s.presign(ctx, http.MethodGet, key, s.signedTime(0), nil, -1)
	return Signed{URL: u}, err
}

// SignPut implements Signer.
func (s *S3) SignPut(ctx context.Context, key string, size int64) (Signed, error) {
	if err := checkPut(key, size); err != nil {
		return Signed{}, err
	}
	if err := s.ensureBucket(ctx); err != nil {
		return Signed{}, fmt.Errorf("store %s in %w", key, err)
	}
	if size > minPart {
		return s.signParts(ctx, key, size)
	}
	u, err := s.presign(ctx, http.MethodPut, key, s.signedTime(size), nil, size)
	return Signed{URL: u}, err
}

// signParts starts an upload in parts. If it is neither completed nor aborted, it uses space until the store removes
// it: MinIO after a day, S3 if configured.
func (s *S3) signParts(ctx context.Context, key string, size int64) (Signed, error) {
	opts := minio.PutObjectOptions{ContentType: "application/octet-stream"}
	id, err := s.core.NewMultipartUpload(ctx, s.bucket, s.prefix+key, opts)
	if err != nil {
		return Signed{}, fmt.Errorf("start to store %s in %s: %w", key, s, s.classify(err))
	}
	life := s.signedTime(size)
	signed := Signed{PartBytes: max(minPart, (size+maxParts-1)/maxParts)}
	for from := int64(0); from < size; from += signed.PartBytes {
		query := url.Values{"uploadId": {id}, "partNumber": {strconv.Itoa(len(signed.Parts) + 1)}}
		u, err := s.presign(ctx, http.MethodPut, key, life, query, min(signed.PartBytes, size-from))
		if err != nil {
			return Signed{}, err
		}
		signed.Parts = append(signed.Parts, u)
	}
	if signed.Complete, err = s.presign(ctx, http.MethodPost, key, life, url.Values{"uploadId": {id}}, -1); err != nil {
		return Signed{}, err
	}
	signed.Abort, err = s.presign(ctx, http.MethodDelete, key, life, url.Values{"uploadId": {id}}, -1)
	return signed, err
}

// presign signs one request. If size is not negative, the body must have exactly that size.
func (s *S3) presign(
	ctx context.Context, method, key string, life time.Duration, query url.Values, size int64,
) (string, error) {
	header := http.Header{}
	if size >= 0 {
		header.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	u, err := s.core.PresignHeader(ctx, method, s.bucket, s.prefix+key, life, query, header)
	if err != nil {
		return "", fmt.Errorf("sign %s of %s in %s: %w", method, key, s, s.classify(err))
	}
	return u.String(), nil
}

// signedTime returns the life of a signature; tests shorten it.
func (s *S3) signedTime(size int64) time.Duration {
	if s.life > 0 {
		return s.life
	}
	return signedTime(size)
}
