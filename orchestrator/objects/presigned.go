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

// ErrRefused says that the object is not for who asked; trying again does not help.
var ErrRefused = errors.New("access refused")

// SignFunc asks for the right to one object: to read it, or with write to store size bytes of it. Its error wraps
// ErrRefused if the answer is no, ErrUnavailable if there is none now.
type SignFunc func(ctx context.Context, key string, write bool, size int64) (Signed, error)

// Presigned is the Access of who has no credentials of the store and asks for every object. A signature is asked for
// anew at every call, so that one that has run out is replaced by trying again.
type Presigned struct {
	// Sign asks for the right to an object.
	Sign SignFunc
	// Client makes the requests.
	Client *http.Client
	// Name names the store.
	Name func() string

	mu sync.Mutex
	// reads are the rights to objects that are read in ranges, by key, and when each was given.
	reads map[string]readRight
}

// readRight is a right to read an object.
type readRight struct {
	url string
	at  time.Time
}

// keepRight is how long the right to an object is kept for its next range; it holds for signedFor at least.
const keepRight = signedFor / 4

const (
	// partsAtOnce are stored side by side.
	partsAtOnce = 4
	// partTries is how often one part is tried before the whole upload is given up.
	partTries = 4
	// maxAnswer bounds what is read of an answer that is no object, in bytes.
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
		p.forget(key) // its signature may be what is not taken
		return nil, fmt.Errorf("get %s from %s: %w", key, p, err)
	}
	body := &classified{ReadCloser: resp.Body, store: p, key: key}
	if resp.StatusCode == http.StatusPartialContent {
		return body, nil
	}
	// A server of an older version sends the whole object.
	if _, err := io.CopyN(io.Discard, body, from); err != nil {
		return nil, errors.Join(fmt.Errorf("get %s from %s: %w", key, p, err), body.Close())
	}
	return section{io.LimitReader(body, n), body}, nil
}

// readRight is the right to read an object, asked for anew now and then.
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
	return resp.Header.Get("ETag"), finish(resp)
}

// finish reads an answer to its end, so that its connection can be used again.
func finish(resp *http.Response) error {
	_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return errors.Join(err, resp.Body.Close())
}

// do makes one request and returns an answer that says that it was done.
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

// answerError is what an answer says that is not the object. A signature that is not taken may have run out, so a new one may
// help.
func answerError(resp *http.Response) error {
	answer := minio.ErrorResponse{Code: resp.Status, Message: resp.Status}
	if err := xml.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer); err != nil {
		answer = minio.ErrorResponse{Code: resp.Status, Message: resp.Status}
	}
	answer.StatusCode = resp.StatusCode
	if resp.StatusCode == http.StatusForbidden {
		return fmt.Errorf("%w: it does not take the server's signature: %s: %s", ErrUnavailable, answer.Code, answer.Message)
	}
	return classifyS3(answer, "")
}

// completion is the list of parts that makes one object of them.
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
	// Parts that nobody completes would take room.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if resp, abortErr := p.do(last, http.MethodDelete, signed.Abort, http.NoBody, 0); abortErr == nil {
		_ = finish(resp)
	}
	return err
}

// storeParts stores the parts of a file side by side. Of anything else it keeps some parts in memory, so that one is stored
// while the next is read; those too large for that are stored one after another as they are read, and are not tried again.
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
				parts[i].ETag, err = p.putPart(ctx, url, io.NewSectionReader(file, start+from, n), n)
				return err
			})
		case kept == nil:
			parts[i].ETag, err = p.put(ctx, url, r, n)
		default:
			data := <-kept // those that store give theirs back, whatever becomes of it
			if int64(len(data)) < n {
				data = partBuffer(n)
			}
			if _, err = io.ReadFull(r, data[:n]); err != nil {
				break
			}
			group.Go(func() (err error) {
				defer func() { kept <- data }()
				parts[i].ETag, err = p.putPart(ctx, url, bytes.NewReader(data[:n]), n)
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
	freeParts(kept) // not of one that failed: a request that is given up may still read its part
	return parts, nil
}

// partBuffers are of uploads that ended: making and clearing one for each part of every average took a tenth of its processor time.
var partBuffers sync.Pool //nolint:gochecknoglobals // of *[]byte

// partBuffer is a buffer of n bytes, or more.
func partBuffer(n int64) []byte {
	if b, ok := partBuffers.Get().(*[]byte); ok && int64(len(*b)) >= n {
		return *b
	}
	return make([]byte, n)
}

// freeParts leaves buffers to other uploads.
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

// fileAt is r's file and where it stands in it, nil if it is none.
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

func (p *Presigned) putPart(ctx context.Context, url string, part io.ReadSeeker, size int64) (string, error) {
	for try := 1; ; try++ {
		if _, err := part.Seek(0, io.SeekStart); err != nil {
			return "", err
		}
		tag, err := p.put(ctx, url, part, size)
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

// complete makes an object of its parts. The answer says 200 before it is known whether that works: its body tells.
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
