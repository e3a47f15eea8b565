package audit

import (
	"container/list"
	"strings"
	"sync"
)

// queue holds the events that wait to be stored, the oldest first. If it is full, the tenant whose calls caused most of
// them loses its newest one, so that a tenant cannot displace the records of another. It is safe for concurrent use.
type queue struct {
	mu      sync.Mutex
	size    int
	waiting list.List                  // of entry
	tenants map[string][]*list.Element // of waiting, by the caller's tenant
	added   chan struct{}
}

func newQueue(size int) *queue {
	return &queue{size: size, tenants: map[string][]*list.Element{}, added: make(chan struct{}, 1)}
}

// push adds an entry. If the queue is full, it returns the entry that is lost: this one, or one of another tenant.
func (q *queue) push(e entry) (lost entry, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	tenant := callersTenant(&e.event)
	if full = q.waiting.Len() >= q.size; full {
		most := tenant
		for other, its := range q.tenants {
			if len(its) > len(q.tenants[most]) {
				most = other
			}
		}
		if most == tenant {
			return e, true
		}
		its := q.tenants[most]
		lost, _ = q.waiting.Remove(its[len(its)-1]).(entry)
		q.tenants[most] = its[:len(its)-1]
	}
	q.tenants[tenant] = append(q.tenants[tenant], q.waiting.PushBack(e))
	select {
	case q.added <- struct{}{}:
	default:
	}
	return lost, full
}

// pop removes the oldest entry; ok is false if none waits.
func (q *queue) pop() (e entry, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := q.waiting.Front()
	if first == nil {
		return entry{}, false
	}
	e, _ = q.waiting.Remove(first).(entry)
	tenant := callersTenant(&e.event)
	if its := q.tenants[tenant]; len(its) > 1 {
		q.tenants[tenant] = its[1:]
	} else {
		delete(q.tenants, tenant)
	}
	return e, true
}

// callersTenant returns what the records of one tenant's callers have in common. Anonymous callers and the server itself
// each count as a tenant.
func callersTenant(e *Event) string {
	for _, group := range e.User.Groups {
		if strings.HasPrefix(group, "tenant:") {
			return group
		}
	}
	return e.User.Username
}
