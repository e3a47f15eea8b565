package worker

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
