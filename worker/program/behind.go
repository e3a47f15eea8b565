package program

import (
	"os"
	"sync"
	"time"
)

const (
	// maxBehind is how many bytes of the report file may wait to be read before the program is held, and fewBehind how many when it
	// runs again.
	maxBehind = 1 << 20
	fewBehind = maxBehind / 2
	// behindEvery is how often that is looked at while what was read waits to be taken.
	behindEvery = 5 * time.Millisecond
)

// behind holds the program while it has written much more than was read: it reports no faster than its worker takes it.
type behind struct {
	file *os.File
	// hold stops the program, or lets it run again; nil if it cannot be held.
	hold func(held bool)

	mu   sync.Mutex
	at   int64
	held bool
	// over is set when the program is not to be held any more.
	over bool
}

// read counts bytes that were read.
func (b *behind) read(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at += n
}

// check holds the program or lets it run.
func (b *behind) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hold == nil || b.over {
		return
	}
	info, err := b.file.Stat()
	if err != nil {
		return // reading says so
	}
	left := info.Size() - b.at
	if held := left > maxBehind || b.held && left > fewBehind; held != b.held {
		b.held = held
		b.hold(held)
	}
}

// watch checks again and again until stop.
func (b *behind) watch() (stop func()) {
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
func (b *behind) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.held {
		b.held = false
		b.hold(false)
	}
}
