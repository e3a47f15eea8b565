package program

import (
	"os"
	"sync"
	"time"
)

const (
	// maxBehind is how many unread bytes of the report file hold the program, and fewBehind how many release it.
	maxBehind = 1 << 20
	fewBehind = maxBehind / 2
	// behindEvery is how often the size is checked while reports wait to be sent.
	behindEvery = 5 * time.Millisecond
)

// throttle holds the program while its report file has many unread bytes, so that it reports no faster than its worker
// can send.
type throttle struct {
	file *os.File
	// hold stops or continues the program; nil if it cannot be held.
	hold func(held bool)

	mu   sync.Mutex
	at   int64
	held bool
	// over is set when the program must not be held any more.
	over bool
}

// read counts bytes that were read.
func (b *throttle) read(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at += n
}

// position returns how many bytes were read.
func (b *throttle) position() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

// check holds or releases the program.
func (b *throttle) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hold == nil || b.over {
		return
	}
	info, err := b.file.Stat()
	if err != nil {
		return // reading returns the error
	}
	left := info.Size() - b.at
	if held := left > maxBehind || b.held && left > fewBehind; held != b.held {
		b.held = held
		b.hold(held)
	}
}

// watch calls check periodically until stop is called.
func (b *throttle) watch() (stop func()) {
	var mu sync.Mutex
	stopped := false
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(behindEvery, func() {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			b.check()
			timer.Reset(behindEvery)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// release lets the program run for good.
func (b *throttle) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.held {
		b.held = false
		b.hold(false)
	}
}
