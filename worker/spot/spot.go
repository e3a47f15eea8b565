// Package spot looks for the notice that a machine is about to be taken away, in a file or from the metadata service of a
// cloud.
package spot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

// clouds has the address at which each cloud announces the end of a spot machine.
func clouds() map[string]string {
	return map[string]string{
		"ec2":   "http://169.254.169.254/latest/meta-data/spot/instance-action",
		"gce":   "http://169.254.169.254/computeMetadata/v1/instance/preempted",
		"azure": "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01",
	}
}

// A Source says whether the machine is about to be taken away. It is not safe for concurrent use.
type Source interface {
	// Look returns the notice in one line, or "" without a notice. After an error it is not known.
	Look(ctx context.Context) (notice string, err error)
}

// Open returns the source that a text names: ec2, gce, azure, file:PATH or a URL. It reads nothing.
func Open(name string) (Source, error) {
	if path, ok := strings.CutPrefix(name, "file:"); ok && path != "" {
		return file(path), nil
	}
	address := name
	if known, ok := clouds()[name]; ok {
		address = known
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("must be ec2, gce, azure, file:PATH or an http URL, got %q", name)
	}
	return newMetadata(u), nil
}

// file is a file that exists while there is a notice. Its first line is the reason.
type file string

// maxLine limits what is read of a file.
const maxLine = 4 << 10

// Look implements Source.
func (f file) Look(context.Context) (string, error) {
	info, err := os.Stat(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("spot notice: %w", err)
	}
	if !info.Mode().IsRegular() { // reading a pipe could block
		return "", fmt.Errorf("spot notice: %s is not a regular file", string(f))
	}
	r, err := os.Open(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("spot notice: %w", err)
	}
	defer r.Close() //nolint:errcheck // only read
	line, err := bufio.NewReader(io.LimitReader(r, maxLine)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("spot notice: %w", err)
	}
	return text(strings.TrimSpace(line)), nil
}

// text returns a notice with its reason, which may be empty.
func text(reason string) string {
	if reason == "" {
		return "spot notice"
	}
	return sanitize.Line("spot notice: "+reason, limits.Detail)
}
