package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// writeServerFile writes what other commands and scripts need to find a server.
func writeServerFile(path string, f serverFile) error {
	data, err := encodeJSON(f, true)
	if err != nil {
		return err
	}
	return writeWhole(path, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
}

// nodesTimeout is how long a server waits for its own workers to be known before it says that it is ready.
const nodesTimeout = 3 * time.Second

// announce waits for the workers of this process and writes the files that say where the server is.
func (s *server) announce(ctx context.Context) error {
	s.awaitWorkers(ctx)
	keys, err := filepath.Abs(s.opts.nats.keys)
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	file := serverFile{
		API: s.api.URL(), NATS: s.natsURL, PID: os.Getpid(), Keys: keys, Version: s.app.version,
		WhileClients: s.opts.whileClients,
	}
	for _, path := range s.readyFiles() {
		if err := writeServerFile(path, file); err != nil {
			return err
		}
	}
	return nil
}

// readyFiles are the files that say where the server is.
func (s *server) readyFiles() []string {
	files := []string{serverFilePath(s.opts.data)}
	if s.opts.readyFile != "" {
		files = append(files, s.opts.readyFile)
	}
	return files
}

// withdraw removes them.
func (s *server) withdraw() error {
	var errs []error
	for _, path := range s.readyFiles() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// awaitWorkers returns when the workers of this process are known, or it took too long: they may come later.
func (s *server) awaitWorkers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.missingWorkers() > 0 {
		select {
		case <-tick.C:
		case <-s.lead.Lost():
			return
		case <-ctx.Done():
			return
		}
	}
}

// missingWorkers counts the workers of this process that are not up yet.
func (s *server) missingWorkers() int {
	up := map[string]bool{}
	for _, n := range s.loop.Nodes() {
		up[n.GetInfo().GetName()] = n.GetState() == outbidv1.NodeState_NODE_STATE_UP
	}
	missing := 0
	for _, w := range s.opts.workers {
		if !up[w.name] {
			missing++
		}
	}
	return missing
}
