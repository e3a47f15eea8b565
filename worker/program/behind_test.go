package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A program whose reports wait is held, so that its report file does not grow without limit, and ends when it has to.
func TestAProgramIsHeldWhileItsReportsWait(t *testing.T) {
	t.Parallel()
	for _, verdict := range []outbidv1.Verdict{outbidv1.Verdict_VERDICT_STOP, outbidv1.Verdict_VERDICT_PAUSE} {
		t.Run(verdict.String(), func(t *testing.T) {
			t.Parallel()
			spec := newSpec(t, 0, `echo $$ > pid; exec yes '{"loss": 1}' >> $OUTBID_REPORT`)
			run, r := start(t, spec) // none of its reports is sent
			report := filepath.Join(spec.Scratch, "run-1", "report.jsonl")
			deadline := time.After(patience)
			for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
				text, _ := os.ReadFile(filepath.Join(spec.Dir, "pid"))
				stat, _ := os.ReadFile(fmt.Sprintf("/proc/%s/stat", strings.TrimSpace(string(text))))
				if strings.Contains(string(stat), "(yes) T") {
					break
				}
				select {
				case <-deadline:
					t.Fatalf("the program is not held: %s", stat)
				default:
				}
			}
			info, err := os.Stat(report)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("it is held after %d bytes", info.Size())
			run.Direct(verdict, 0, "")
			if verdict == outbidv1.Verdict_VERDICT_PAUSE { // its reports are handled until the worker kills it
				time.AfterFunc(100*time.Millisecond, run.Kill)
			}
			for event := range r.events {
				if event == "ended" {
					break
				}
			}
		})
	}
}
