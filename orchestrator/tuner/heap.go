package tuner

import "fmt"

// An entry is a trial and the cost that it is ranked by. Lower is better; ties go to the trial created first.
type entry struct {
	Cost  float64
	Trial Trial
}

// ahead reports whether a ranks before b. Costs are never NaN, because trials whose metric is NaN are not ranked.
func ahead(a, b entry) bool {
	if a.Cost != b.Cost {
		return a.Cost < b.Cost
	}
	return a.Trial < b.Trial
}

func behind(a, b entry) bool { return ahead(b, a) }

// compareEntries orders entries from best to worst, for package slices.
func compareEntries(a, b entry) int {
	switch {
	case ahead(a, b):
		return -1
	case ahead(b, a):
		return 1
	default:
		return 0
	}
}

// A heap is a binary heap whose top is the item above all others. container/heap boxes every item, which doubles the
// memory of a sweep of 100,000 trials.
type heap[T any] struct {
	above func(a, b T) bool
	items []T
}

// heapOf returns a heap of items that are in the order of one, such as those of an earlier heap with the same order.
func heapOf[T any](above func(a, b T) bool, items []T) heap[T] { return heap[T]{above, items} }

func (h *heap[T]) len() int { return len(h.items) }

// top returns the item that pop would remove. The heap must not be empty.
func (h *heap[T]) top() T { return h.items[0] }

func (h *heap[T]) push(item T) {
	h.items = append(h.items, item)
	for i := len(h.items) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.above(h.items[i], h.items[parent]) {
			return
		}
		h.items[i], h.items[parent] = h.items[parent], h.items[i]
		i = parent
	}
}

func (h *heap[T]) pop() T {
	item := h.items[0]
	last := len(h.items) - 1
	h.items[0] = h.items[last]
	h.items = h.items[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return item
		}
		if child+1 < last && h.above(h.items[child+1], h.items[child]) {
			child++
		}
		if !h.above(h.items[child], h.items[i]) {
			return item
		}
		h.items[i], h.items[child] = h.items[child], h.items[i]
		i = child
	}
}

// dropTop pops stale items until holds accepts the top one, and reports whether an item is left. Entries of trials that
// left the ranking stay in the heap until dropTop removes them.
func (h *heap[T]) dropTop(holds func(T) bool) bool {
	for h.len() > 0 {
		if holds(h.top()) {
			return true
		}
		h.pop()
	}
	return false
}

// A ranking is a heap of trials with the best or the worst on top.
type ranking = heap[entry]

func bestFirst() ranking  { return heapOf[entry](ahead, nil) }
func worstFirst() ranking { return heapOf[entry](behind, nil) }

// ordinal writes a place as a person says it: "1st", "2nd".
func ordinal(n int) string {
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
