package control

import (
	"runtime"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Nearly all of a large snapshot is records of trials. They are decoded apart from the rest: on all cores, and each is
// released as soon as its trial is restored. Otherwise most of a restart would be the collection of garbage.

// trialsAtOnce is how many trials a goroutine decodes before it takes others.
const trialsAtOnce = 1024

// splitField returns the values of a field of an encoded message, and the message without them.
func splitField(data []byte, field protowire.Number) (rest []byte, values [][]byte, err error) {
	from := 0 // the first byte that rest does not have
	for at := 0; at < len(data); {
		number, kind, head := protowire.ConsumeTag(data[at:])
		if head < 0 {
			return nil, nil, protowire.ParseError(head)
		}
		size := protowire.ConsumeFieldValue(number, kind, data[at+head:])
		if size < 0 {
			return nil, nil, protowire.ParseError(size)
		}
		end := at + head + size
		if number == field && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(data[at+head:])
			rest, values, from = append(rest, data[from:at]...), append(values, value), end
		}
		at = end
	}
	return append(rest, data[from:]...), values, nil
}

// decodeTrials decodes records of trials on all cores.
func decodeTrials(encoded [][]byte) ([]state.RestoredTrial, error) {
	trials := make([]state.RestoredTrial, len(encoded))
	var next int
	var failed error
	var mu sync.Mutex
	take := func(err error) (from, to int) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed, next = err, len(encoded)
		}
		from = next
		next = min(from+trialsAtOnce, len(encoded))
		return from, next
	}
	var done sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (len(encoded)+trialsAtOnce-1)/trialsAtOnce) {
		done.Go(func() {
			d := trialDecoder{record: new(outbidv1.TrialRecord), trial: new(outbidv1.Trial)}
			for from, to := take(nil); from < to; {
				var err error
				for i := from; i < to && err == nil; i++ {
					trials[i], err = d.decode(encoded[i])
				}
				from, to = take(err)
			}
		})
	}
	done.Wait()
	return trials, failed
}

// trialDecoder decodes records of trials one after the other into the same messages.
type trialDecoder struct {
	record *outbidv1.TrialRecord
	trial  *outbidv1.Trial
}

func (d *trialDecoder) decode(encoded []byte) (state.RestoredTrial, error) {
	proto.Reset(d.trial)
	proto.Reset(d.record)
	d.record.Trial = d.trial // every record has one
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(encoded, d.record); err != nil {
		return state.RestoredTrial{}, err
	}
	return state.RestoreTrial(d.record), nil
}
