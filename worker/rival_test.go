package worker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Two workers of one name share a subject: each receives the other's orders.
func TestAWorkerThatIsNeverOrderedWhileItsNamesakeIsEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, func(err error) {
			if !errors.Is(err, errRival) {
				t.Errorf("it ended with %v", err)
			}
		})
		o := r.bus.orch
		o.assign(assignment(1, 5, 0))
		x := <-r.starts
		o.with(func() { o.deaf = true }) // it trusts another worker
		others := func() { o.send(&outbidv1.Orders{Node: "n1", Boot: "another", Generation: 1, Term: 9}) }
		for range int(rivalPatience / time.Second) {
			others()
			pass(time.Second)
		}
		select {
		case <-r.done:
			t.Fatal("it gave up too early")
		default:
		}
		others()
		pass(2 * time.Second)
		<-x.killed
		<-r.done
	})
}

func TestAWorkerBearsANamesakeThatIsForgotten(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.await(t, "info", func() bool { return o.info != nil })
		o.send(&outbidv1.Orders{Node: "n1", Boot: "before", Generation: 1, Term: 9})
		pass(3 * rivalPatience)
		select {
		case <-r.done:
			t.Error("it ended for an order of long ago")
		default:
		}
	})
}
