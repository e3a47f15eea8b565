package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// JobName identifies a job in a policy's state, which must not refer to a view.
type JobName struct {
	App   string
	Trial int32
}

// Name returns the job's name, which is the same in every view.
func (j *Job) Name() JobName { return JobName{j.App.ID, j.Trial} }

// MarshalText formats the name as users see it, for example "digits-1/17", so that it can be a key in JSON.
func (n JobName) MarshalText() ([]byte, error) {
	return strconv.AppendInt([]byte(n.App+"/"), int64(n.Trial), 10), nil
}

// UnmarshalText parses the format of MarshalText.
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
