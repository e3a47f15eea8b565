package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outbid-dev/outbid/worker/session"
	"github.com/outbid-dev/outbid/worker/session/sessiontest"
)

const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if AverageMain() {
		return
	}
	switch {
	case sessiontest.Enabled():
		if err := sessiontest.Run(context.Background(), trainForTest); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	case os.Getenv("WORKER_TEST_URL") != "":
		workerForTest()
	case os.Getenv(averageEnv) != "":
		if err := averageForTest(os.Getenv(averageEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	default:
		goleak.VerifyTestMain(m)
	}
}

// trainForTest is the training code of the tests with real processes; the configuration selects its behaviour.
func trainForTest(t *sessiontest.Trial) error {
	fmt.Printf("\x1eoutbid:%s/%d@%d\n", t.GetFork().GetSweep(), t.GetFork().GetTrial(), t.GetFork().GetLeaseId())
	what := strings.Trim(t.GetConfigJson(), `{}"`)
	switch what {
	case "flood", "storm":
		return floodForTest(t)
	case "connect":
		return connectForTest(t)
	case "error":
		return errors.New("ValueError: bad configuration")
	case "nan":
		return t.Report(1, map[string]float64{"loss": math.NaN(), "acc": math.Inf(1)})
	case "environment":
		for _, name := range []string{
			"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "WORD", "OUTBID_SECRET_OF_TEST", "PLANTED_SECRET", "PASSED_WORD",
		} {
			fmt.Println(name + "=" + os.Getenv(name))
		}
		return t.Report(1, map[string]float64{"pid": float64(os.Getpid())})
	}
	step := t.GetStartStep()
	if path := t.GetCheckpointPath(); path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Printf("starts from %s\n", data)
	}
	for {
		if step == t.Until {
			if err := t.Save(step, fmt.Appendf(nil, "weights of %d", step)); err != nil {
				return err
			}
			if err := t.Reached(step); err != nil {
				return err
			}
		}
		for what == "die" && step == 2 && t.Acked < 2 { // messages in flight when a process dies may be lost
			if _, err := t.Wait(); err != nil {
				return err
			}
		}
		if what == "die" && step == 2 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if what == "hang" && step == 2 {
			select {}
		}
		step++
		if err := t.Report(step, map[string]float64{"loss": 1 / float64(step), "pid": float64(os.Getpid())}); err != nil {
			return err
		}
	}
}

// attackConns is how many connections one trial opens.
const attackConns = 17_400

// connectForTest opens connections to its worker's socket, reports how many, and keeps them open.
func connectForTest(t *sessiontest.Trial) error {
	opened := 0
	for range attackConns {
		if _, err := net.Dial("unix", os.Getenv(session.EnvStream)); err == nil { //nolint:noctx // ends with the process
			opened++
		}
	}
	if err := t.Report(1, map[string]float64{"opened": float64(opened)}); err != nil {
		return err
	}
	_, err := t.Wait()
	return err
}

// floodForTest reports as fast as it can, in batches as the SDK does, until it is stopped.
func floodForTest(t *sessiontest.Trial) error {
	metrics := map[string]float64{"loss": 0.5, "acc": 0.9}
	for step := int64(1); t.Until == 0 || step <= t.Until; step++ {
		if err := t.Report(step, metrics); err != nil {
			return err
		}
	}
	return nil
}
