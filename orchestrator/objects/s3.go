package objects

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
)

// retries of one request by the client before ErrUnavailable; the delays grow to a second.
const retries = 4

// maxBuffered is the maximum that Put buffers, in bytes; a smaller upload is one request.
const maxBuffered = 16 << 20

// S3 is a store in a bucket of MinIO, S3 or a compatible server. It uses only basic requests: put, get, head, list,
// delete.
type S3 struct {
	core   minio.Core
	bucket string
	prefix string // empty or ending with a slash
	name   string

	endpoint, region string
	// reached is set once the bucket exists, or if only the server can know.
	reached atomic.Bool
	// stored is set once an object was stored, which shows that the credentials are sufficient.
	stored atomic.Bool
	// life of a signature, or 0 to derive it from the size.
	life time.Duration
}

// String implements Store.
func (s *S3) String() string { return s.name }

// Put implements Store.
func (s *S3) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := checkPut(key, size); err != nil {
		return err
	}
	if err := s.ensureBucket(ctx); err != nil {
		return fmt.Errorf("store %s in %w", key, err)
	}
	r, err := body(ctx, r, size)
	if err != nil {
		return fmt.Errorf("store %s in %s: %w", key, s, err)
	}
	opts := minio.PutObjectOptions{
		ContentType: "application/octet-stream",
		// Signing an empty body in chunks sends no length, which some servers reject.
		DisableContentSha256: size == 0,
	}
	if _, ok := r.(io.ReaderAt); !ok && size > maxBuffered {
		// Other readers are also sent in parts. Some are buffered, so that they are stored while the next is read.
		opts.PartSize = uint64(max(minPart, (size+mostParts-1)/mostParts))
		opts.ConcurrentStreamParts, opts.NumThreads = opts.PartSize <= maxKeptPart, streamedAtOnce
	}
	info, err := s.core.Client.PutObject(ctx, s.bucket, s.prefix+key, r, size, opts)
	if err == nil && info.Size != size {
		err = fmt.Errorf("%d bytes arrived, want %d", info.Size, size)
	}
	if err != nil {
		return fmt.Errorf("store %s in %s: %w", key, s, s.notStored(err))
	}
	s.stored.Store(true)
	return nil
}

// notStored classifies the error of a Put. MinIO denies access to a name if a neighbouring one is being removed, so if
// earlier Puts succeeded, a retry may help.
func (s *S3) notStored(err error) error {
	denied := s.classify(err)
	if s.stored.Load() && minio.ToErrorResponse(err).Code == "AccessDenied" {
		return fmt.Errorf("%w: it accepted objects before, but now %w", ErrUnavailable, denied)
	}
	return denied
}

// body returns a reader for the upload. A file or a small object can be read again for a retry, and a file can be sent
// in concurrent parts.
func body(ctx context.Context, r io.Reader, size int64) (io.Reader, error) {
	if f, ok := r.(*os.File); ok {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		offset, err := f.Seek(0, io.SeekCurrent)
		if err == nil && info.Size()-offset < size {
			err = &shortError{missing: size - (info.Size() - offset)}
		}
		return f, err
	}
	exact := &exactReader{ctx: ctx, r: r, left: size}
	if size > maxBuffered {
		return exact, nil
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(exact, data); err != nil {
		return nil, err
	}
	return bytes.NewReader(data), nil
}

// Get implements Store.
func (s *S3) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	return s.get(ctx, key, minio.GetObjectOptions{})
}

// GetRange implements Store.
func (s *S3) GetRange(ctx context.Context, key string, from, n int64) (io.ReadCloser, error) {
	if err := checkRange(key, from, n); err != nil {
		return nil, err
	}
	opts := minio.GetObjectOptions{}
	if err := opts.SetRange(from, from+n-1); err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	return s.get(ctx, key, opts)
}

func (s *S3) get(ctx context.Context, key string, opts minio.GetObjectOptions) (io.ReadCloser, error) {
	if err := s.ensureBucket(ctx); err != nil {
		return nil, fmt.Errorf("get %s from %w", key, err)
	}
	body, _, _, err := s.core.GetObject(ctx, s.bucket, s.prefix+key, opts)
	if err != nil {
		return nil, fmt.Errorf("get %s from %s: %w", key, s, s.classify(err))
	}
	return &classified{ReadCloser: body, store: s, key: key, bucket: s.bucket}, nil
}

// classified is an object's content that reports a broken connection as an unavailable store.
type classified struct {
	io.ReadCloser
	// store is the store's name; bucket is empty if unknown.
	store       fmt.Stringer
	key, bucket string
}

// Read implements io.Reader.
func (c *classified) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // readers return io.EOF itself
		err = fmt.Errorf("get %s from %s: %w", c.key, c.store, classifyS3(err, c.bucket))
	}
	return n, err
}

// Stat implements Store.
func (s *S3) Stat(ctx context.Context, key string) (Info, error) {
	if err := CheckKey(key); err != nil {
		return Info{}, err
	}
	if err := s.ensureBucket(ctx); err != nil {
		return Info{}, fmt.Errorf("stat %s in %w", key, err)
	}
	info, err := s.core.Client.StatObject(ctx, s.bucket, s.prefix+key, minio.StatObjectOptions{})
	if err != nil {
		return Info{}, fmt.Errorf("stat %s in %s: %w", key, s, s.classify(err))
	}
	return Info{Key: key, Size: info.Size, Modified: info.LastModified}, nil
}

// List implements Store.
func (s *S3) List(ctx context.Context, prefix string, f func(Info) bool) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	if err := s.ensureBucket(ctx); err != nil {
		return fmt.Errorf("list %s in %w", prefix, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opts := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}
	objects := s.core.Client.ListObjects(ctx, s.bucket, opts)
	defer func() {
		cancel()
		for range objects { // until the lister has ended
		}
	}()
	for object := range objects {
		if object.Err != nil {
			return fmt.Errorf("list %s in %s: %w", prefix, s, s.classify(object.Err))
		}
		key := strings.TrimPrefix(object.Key, s.prefix)
		if CheckKey(key) != nil {
			continue // not an object of this store
		}
		if !f(Info{Key: key, Size: object.Size, Modified: object.LastModified}) {
			return nil
		}
	}
	return ctx.Err()
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := s.ensureBucket(ctx); err != nil {
		return fmt.Errorf("delete %s in %w", key, err)
	}
	err := s.core.RemoveObject(ctx, s.bucket, s.prefix+key, minio.RemoveObjectOptions{})
	if err = s.classify(err); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete %s in %s: %w", key, s, err)
	}
	return nil
}

// Check implements Store.
func (s *S3) Check(ctx context.Context) error { return check(ctx, s) }

// classify marks an error of the server or the connection with its meaning for the caller.
func (s *S3) classify(err error) error { return classifyS3(err, s.bucket) }

// classifyS3 is classify for an object in a bucket.
func classifyS3(err error, bucket string) error {
	if err == nil {
		return nil
	}
	var short *shortError
	if errors.As(err, &short) {
		return err
	}
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return fmt.Errorf("its certificate is not trusted; set SSL_CERT_FILE to a file with trusted certificates: %w", untrusted.Err)
	}
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		var wrapped *url.Error
		if errors.As(err, &wrapped) && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return classify(err)
	}
	switch answer.Code {
	case "NoSuchKey", "NotFound", "NoSuchUpload":
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case "NoSuchBucket":
		return fmt.Errorf("there is no bucket %q: %w", bucket, err)
	case "ExistingObjectIsDirectory":
		// A Versity gateway answers this if another client stores the object at the same time.
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded", "InsufficientStorage":
		return fmt.Errorf("%w: %w", ErrFull, err)
	case "AccessDenied":
		return fmt.Errorf("the credentials do not allow this; check the policy of bucket %q: %w", bucket, err)
	case "RequestTimeTooSkewed":
		return fmt.Errorf("the clocks of this machine and the store differ too much; synchronise them: %w", err)
	case "InvalidAccessKeyId", "SignatureDoesNotMatch":
		return fmt.Errorf("the credentials are wrong; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: %w", err)
	}
	switch {
	case answer.StatusCode == http.StatusInsufficientStorage:
		return fmt.Errorf("%w: %w", ErrFull, err)
	case answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case answer.StatusCode >= 500, answer.StatusCode == http.StatusTooManyRequests,
		answer.StatusCode == http.StatusRequestTimeout:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
