package objects

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"
)

// ErrRefused means that the client may not access the object; a retry does not help.
var ErrRefused = errors.New("access refused")

// SignFunc requests the right to one object: to read it, or with write to store size bytes. Its error wraps ErrRefused
// for a denial, or ErrUnavailable if it gets no answer now.
type SignFunc func(ctx context.Context, key string, write bool, size int64) (Signed, error)

// Presigned is an Access for clients without store credentials, which request a signature for every object. Each call
// requests a new signature, so that a retry replaces an expired one.
type Presigned struct {
	// Sign requests the right to an object.
	Sign SignFunc
	// Client makes the requests.
	Client *http.Client
	// Name names the store.
	Name func() string

	mu sync.Mutex
	// reads has the rights to objects that are read in ranges, by key.
	reads map[string]readRight
}

// readRight is a right to read an object.
type readRight struct {
	url string
	at  time.Time
}

// keepRight is how long the right to an object is reused for its next range; it is valid for at least signedFor.
const keepRight = signedFor / 4

const (
	// partsAtOnce is how many parts are stored concurrently.
	partsAtOnce = 4
	// partTries is how often a part is tried before the upload fails.
	partTries = 4
	// maxAnswer limits the bytes read of an answer that is not an object.
	maxAnswer = 1 << 20
)

// String implements Access.
func (p *Presigned) String() string { return p.Name() }

// Get implements Access.
func (p *Presigned) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	signed, err := p.Sign(ctx, key, false, 0)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	resp, err := p.do(ctx, http.MethodGet, signed.URL, http.NoBody, 0)
	if err != nil {
		return nil, fmt.Errorf("get %s from %s: %w", key, p, err)
	}
	return &classified{ReadCloser: resp.Body, store: p, key: key}, nil
}

// GetRange implements Access.
func (p *Presigned) GetRange(ctx context.Context, key string, from, n int64) (io.ReadCloser, error) {
	if err := checkRange(key, from, n); err != nil {
		return nil, err
	}
	target, err := p.readRight(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, from+n-1))
	resp, err := p.send(req)
	if err != nil {
		p.forget(key) // the server may have rejected the signature
		return nil, fmt.Errorf("get %s from %s: %w", key, p, err)
	}
	body := &classified{ReadCloser: resp.Body, store: p, key: key}
	if resp.StatusCode == http.StatusPartialContent {
		return body, nil
	}
	// The store ignored the range and sends the whole object.
	if _, err := io.CopyN(io.Discard, body, from); err != nil {
		return nil, errors.Join(fmt.Errorf("get %s from %s: %w", key, p, err), body.Close())
	}
	return section{io.LimitReader(body, n), body}, nil
}

// readRight returns the right to read an object, and renews it regularly.
func (p *Presigned) readRight(ctx context.Context, key string) (string, error) {
	p.mu.Lock()
	right, ok := p.reads[key]
	p.mu.Unlock()
	if ok && time.Since(right.at) < keepRight {
		return right.url, nil
	}
	right.at = time.Now()
	signed, err := p.Sign(ctx, key, false, 0)
	if err != nil {
		return "", err
	}
	right.url = signed.URL
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reads == nil {
		p.reads = map[string]readRight{}
	}
	p.reads[key] = right
	return right.url, nil
}

func (p *Presigned) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.reads, key)
}

// Put implements Access.
func (p *Presigned) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := checkPut(key, size); err != nil {
		return err
	}
	r, err := body(ctx, r, size)
	if err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	signed, err := p.Sign(ctx, key, true, size)
	if err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	if signed.URL == "" {
		err = p.putParts(ctx, signed, r, size)
	} else {
		_, err = p.put(ctx, signed.URL, r, size)
	}
	if err != nil {
		return fmt.Errorf("store %s in %s: %w", key, p, err)
	}
	return nil
}

// put stores size bytes at a URL and returns the ETag.
func (p *Presigned) put(ctx context.Context, url string, r io.Reader, size int64) (string, error) {
	resp, err := p.do(ctx, http.MethodPut, url, io.LimitReader(r, size), size)
	if err != nil {
		return "", err
	}
	return resp.Header.Get("ETag"), drainBody(resp)
}

// drainBody reads an answer to its end, so that its connection can be reused.
func drainBody(resp *http.Response) error {
	_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return errors.Join(err, resp.Body.Close())
}

// do makes a request, and returns the answer if it is a success.
func (p *Presigned) do(ctx context.Context, method, target string, r io.Reader, size int64) (*http.Response, error) {
	if size == 0 {
		r = http.NoBody
	}
	req, err := http.NewRequestWithContext(ctx, method, target, r)
	if err != nil {
		return nil, err
	}
	req.ContentLength = size
	return p.send(req)
}

// send makes a request.
func (p *Presigned) send(req *http.Request) (*http.Response, error) {
	resp, err := p.Client.Do(req)
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		failed.URL, _, _ = strings.Cut(failed.URL, "?") // the signature is a secret
	}
	if err != nil {
		return nil, classifyS3(err, "")
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	return nil, errors.Join(answerError(resp), resp.Body.Close())
}

// answerError returns the error in an answer. A rejected signature may have expired, so a new one may help.
func answerError(resp *http.Response) error {
	answer := minio.ErrorResponse{Code: resp.Status, Message: resp.Status}
	if err := xml.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer); err != nil {
		answer = minio.ErrorResponse{Code: resp.Status, Message: resp.Status}
	}
	answer.StatusCode = resp.StatusCode
	if resp.StatusCode == http.StatusForbidden {
		return fmt.Errorf("%w: it rejects the server's signature: %s: %s", ErrUnavailable, answer.Code, answer.Message)
	}
	return classifyS3(answer, "")
}

// completion is the list of parts of a complete object.
type completion struct {
	XMLName xml.Name             `xml:"CompleteMultipartUpload"`
	Parts   []minio.CompletePart `xml:"Part"`
}

func (p *Presigned) putParts(ctx context.Context, signed Signed, r io.Reader, size int64) error {
	parts, err := p.storeParts(ctx, signed, r, size)
	if err == nil {
		err = p.complete(ctx, signed.Complete, parts)
	}
	if err == nil {
		return nil
	}
	// Abort, because unfinished parts would use space.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if resp, abortErr := p.do(last, http.MethodDelete, signed.Abort, http.NoBody, 0); abortErr == nil {
		_ = drainBody(resp)
	}
	return err
}

// storeParts stores the parts of a file concurrently. For other readers it buffers some parts in memory, so that one is
// stored while the next is read. Parts too large for that are stored one after another as they are read, and are not
// retried.
func (p *Presigned) storeParts(ctx context.Context, signed Signed, r io.Reader, size int64) ([]minio.CompletePart, error) {
	parts := make([]minio.CompletePart, len(signed.Parts))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	file, start := fileAt(r)
	var kept chan []byte
	if file == nil && signed.PartBytes <= maxKeptPart {
		kept = make(chan []byte, streamedAtOnce)
		for range streamedAtOnce {
			kept <- nil
		}
	}
	for i, url := range signed.Parts {
		from := int64(i) * signed.PartBytes
		n := min(signed.PartBytes, size-from)
		parts[i].PartNumber = i + 1
		var err error
		switch {
		case file != nil:
			group.Go(func() (err error) {
				parts[i].ETag, err = p.putPart(ctx, url, part{file, start + from, n})
				return err
			})
		case kept == nil:
			parts[i].ETag, err = p.put(ctx, url, r, n)
		default:
			data := <-kept // uploads return their buffers, whatever their result
			if int64(len(data)) < n {
				data = partBuffer(n)
			}
			if _, err = io.ReadFull(r, data[:n]); err != nil {
				break
			}
			group.Go(func() (err error) {
				defer func() { kept <- data }()
				parts[i].ETag, err = p.putPart(ctx, url, part{bytes.NewReader(data), 0, n})
				return err
			})
		}
		if err != nil || ctx.Err() != nil {
			if failed := group.Wait(); failed != nil {
				return nil, failed
			}
			return nil, errors.Join(err, ctx.Err())
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	freeParts(kept)
	return parts, nil
}

// partBuffers has buffers of finished uploads. Allocating and clearing a buffer for each part of every average took a
// tenth of its CPU time.
var partBuffers sync.Pool //nolint:gochecknoglobals // contains *[]byte

// partBuffer returns a buffer of at least n bytes.
func partBuffer(n int64) []byte {
	if b, ok := partBuffers.Get().(*[]byte); ok && int64(len(*b)) >= n {
		return *b
	}
	return make([]byte, n)
}

// freeParts returns buffers to the pool.
func freeParts(kept <-chan []byte) {
	for {
		select {
		case b := <-kept:
			if b != nil {
				partBuffers.Put(&b)
			}
		default:
			return
		}
	}
}

// fileAt returns the file behind r and its offset, or nil if r is not a file.
func fileAt(r io.Reader) (io.ReaderAt, int64) {
	f, ok := r.(*os.File)
	if !ok {
		return nil, 0
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, 0
	}
	return f, at
}

// putPart stores a part and returns its ETag. It returns once no request reads the part anymore, so its buffer can be
// filled with another.
func (p *Presigned) putPart(ctx context.Context, url string, part part) (string, error) {
	for try := 1; ; try++ {
		tag, err := p.putOnce(ctx, url, part)
		if !errors.Is(err, ErrUnavailable) || try == partTries {
			return tag, err
		}
		select {
		case <-time.After(time.Duration(try) * 200 * time.Millisecond):
		case <-ctx.Done():
			return "", err
		}
	}
}

// putOnce makes one request with a part, and waits until the request is closed: a failed request may return while its
// body is still read (net/http, RoundTripper).
func (p *Presigned) putOnce(ctx context.Context, url string, part part) (string, error) {
	body, closed := part.open()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, body)
	if err != nil {
		return "", err
	}
	req.ContentLength = part.size
	resp, err := p.send(req)
	if err == nil {
		err = drainBody(resp)
	}
	<-closed
	if err != nil {
		return "", err
	}
	return resp.Header.Get("ETag"), nil
}

// complete combines an object's parts. The server answers 200 before it knows whether that succeeds, so the body has
// the result.
func (p *Presigned) complete(ctx context.Context, url string, parts []minio.CompletePart) error {
	list, err := xml.Marshal(completion{Parts: parts})
	if err != nil {
		return err
	}
	resp, err := p.do(ctx, http.MethodPost, url, bytes.NewReader(list), int64(len(list)))
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return classifyS3(err, "")
	}
	var failed minio.ErrorResponse
	if xml.Unmarshal(data, &failed) == nil && failed.Code != "" {
		failed.StatusCode = http.StatusInternalServerError
		return classifyS3(failed, "")
	}
	return nil
}
