// Package rank orders trials by their costs.
package rank

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// An Entry is a trial and the cost that it is ranked by. Lower is better; ties go to the trial created first.
type Entry struct {
	Cost  float64
	Trial tuner.Trial
}

// Ahead reports whether a ranks before b. Costs are never NaN, because trials whose metric is NaN are not ranked.
func Ahead(a, b Entry) bool {
	if a.Cost != b.Cost {
		return a.Cost < b.Cost
	}
	return a.Trial < b.Trial
}

// Behind reports whether a ranks after b.
func Behind(a, b Entry) bool { return Ahead(b, a) }

// Compare orders entries from best to worst, for package slices.
func Compare(a, b Entry) int {
	switch {
	case Ahead(a, b):
		return -1
	case Ahead(b, a):
		return 1
	default:
		return 0
	}
}

// A Heap is a binary heap whose top is the item above all others. container/heap boxes every item, which doubles the
// memory of a sweep of 100,000 trials.
type Heap[T any] struct {
	above func(a, b T) bool
	Items []T
}

// HeapOf returns a heap of items that already are in the order of a heap, such as those of an earlier one.
func HeapOf[T any](above func(a, b T) bool, items []T) Heap[T] { return Heap[T]{above, items} }

// Len returns the number of items.
func (h *Heap[T]) Len() int { return len(h.Items) }

// Top returns the item that Pop would remove. The heap must not be empty.
func (h *Heap[T]) Top() T { return h.Items[0] }

// Push adds an item.
func (h *Heap[T]) Push(item T) {
	h.Items = append(h.Items, item)
	for i := len(h.Items) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.above(h.Items[i], h.Items[parent]) {
			return
		}
		h.Items[i], h.Items[parent] = h.Items[parent], h.Items[i]
		i = parent
	}
}

// Pop removes and returns the top.
func (h *Heap[T]) Pop() T {
	item := h.Items[0]
	last := len(h.Items) - 1
	h.Items[0] = h.Items[last]
	h.Items = h.Items[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return item
		}
		if child+1 < last && h.above(h.Items[child+1], h.Items[child]) {
			child++
		}
		if !h.above(h.Items[child], h.Items[i]) {
			return item
		}
		h.Items[i], h.Items[child] = h.Items[child], h.Items[i]
		i = child
	}
}

// DropTop pops stale items until holds accepts the top one, and reports whether an item is left. Entries of trials that
// left the ranking stay in the heap until DropTop removes them.
func (h *Heap[T]) DropTop(holds func(T) bool) bool {
	for h.Len() > 0 {
		if holds(h.Top()) {
			return true
		}
		h.Pop()
	}
	return false
}

// A Ranking is a heap of trials with the best or the worst on top.
type Ranking = Heap[Entry]

// BestFirst returns an empty ranking with the best trial on top.
func BestFirst() Ranking { return HeapOf[Entry](Ahead, nil) }

// WorstFirst returns an empty ranking with the worst trial on top.
func WorstFirst() Ranking { return HeapOf[Entry](Behind, nil) }

// Ordinal writes a place as a person says it: "1st", "2nd".
func Ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}
