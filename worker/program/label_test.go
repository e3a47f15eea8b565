package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// lateRecorder is a recorder that takes the first reports only once the program has written to a FIFO.
type lateRecorder struct {
	*recorder
	fifo string
	once sync.Once
}

func (r *lateRecorder) Reports(reports []*outbidv1.Report) {
	r.once.Do(func() { _, _ = os.ReadFile(r.fifo) })
	r.recorder.Reports(reports)
}

// A program may save every checkpoint under the same name. However late the worker reads the lines of the report file, a
// checkpoint is offered with the step of its content, and after the report of that step.
func TestALateCopyHasTheStepOfItsContent(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"one name": "$OUTBID_CHECKPOINT_OUT", "a name for each": "$PWD/ckpt-$i"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fifo := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(fifo, 0o666); err != nil {
				t.Fatal(err)
			}
			spec := newSpec(t, 0, fmt.Sprintf(`i=0; while [ $i -lt 40 ]; do i=$((i+1)); p=%s; echo $i > tmp; mv tmp $p
echo '{"step": '$i', "loss": 1, "checkpoint": "'$p'"}' >> $OUTBID_REPORT; [ $i -ne 30 ] || echo > %s; sleep .02; done`, path, fifo))
			r := &lateRecorder{recorder: newRecorder(), fifo: fifo}
			run, err := Start(t.Context(), spec, r)
			if err != nil {
				t.Fatal(err)
			}
			run.Wait()
			reported, saved := int64(0), 0
			for len(r.events) > 0 {
				var step int64
				var content string
				switch event := <-r.events; {
				case strings.HasPrefix(event, "report "):
					_, _ = fmt.Sscanf(event, "report %d", &reported)
				case strings.HasPrefix(event, "saved "):
					saved++
					_, _ = fmt.Sscanf(event, "saved %d %s", &step, &content)
					if fmt.Sprint(step) != content || step > reported {
						t.Errorf("after the report of step %d: %s", reported, event)
					}
				}
			}
			if reported != 40 || saved < 5 {
				t.Errorf("%d steps were reported and %d checkpoints offered", reported, saved)
			}
		})
	}
}
