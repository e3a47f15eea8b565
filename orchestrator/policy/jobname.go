package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// JobName names a job in the memory of a policy, which keeps nothing of a view.
type JobName struct {
	App   string
	Trial int32
}

// Name of the job, the same in every view.
func (j *Job) Name() JobName { return JobName{j.App.ID, j.Trial} }

// MarshalText writes it as users see it, "digits-1/17", so that it can be a key in JSON.
func (n JobName) MarshalText() ([]byte, error) {
	return strconv.AppendInt([]byte(n.App+"/"), int64(n.Trial), 10), nil
}

// UnmarshalText reads what MarshalText wrote.
func (n *JobName) UnmarshalText(b []byte) error {
	text := string(b)
	cut := strings.LastIndexByte(text, '/')
	trial, err := strconv.ParseInt(text[cut+1:], 10, 32)
	if cut < 0 || err != nil {
		return fmt.Errorf("job %q: want a sweep and a trial such as digits-1/17", text)
	}
	*n = JobName{text[:cut], int32(trial)}
	return nil
}
