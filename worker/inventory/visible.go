package inventory

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// visibleDevices limits the GPUs that a CUDA program sees. Ray, SLURM and Kubernetes set it to the GPUs of a process.
const visibleDevices = "CUDA_VISIBLE_DEVICES"

// restrictToVisible limits the result of look to the worker's own CUDA_VISIBLE_DEVICES, so that a worker does not
// offer GPUs that are reserved for other processes.
func restrictToVisible(look gpus) gpus {
	return func() ([]*outbidv1.Device, []*outbidv1.DeviceLink, error) {
		devices, links, err := look()
		list, bounded := os.LookupEnv(visibleDevices)
		if err != nil || !bounded || len(devices) == 0 {
			return devices, links, err
		}
		return restrict(devices, links, list)
	}
}

// restrict returns the devices named in a value of CUDA_VISIBLE_DEVICES, numbered from 0 in the driver's order, and the
// links among them. An entry is a number in the order of PCI addresses, which is the driver's order, or a UUID or a
// prefix of one. -1 and words such as none hide the entries after them, as in CUDA.
func restrict(devices []*outbidv1.Device, links []*outbidv1.DeviceLink, list string) ([]*outbidv1.Device, []*outbidv1.DeviceLink, error) {
	seen := make(map[int32]bool)
	for _, entry := range entries(list) {
		index, err := named(devices, entry)
		if err != nil {
			return nil, nil, err
		}
		seen[index] = true
	}
	var kept []*outbidv1.Device
	number := make(map[int32]int32)
	for _, d := range devices {
		if seen[d.GetIndex()] {
			number[d.GetIndex()] = int32(len(kept))
			d.Index = int32(len(kept))
			kept = append(kept, d)
		}
	}
	var among []*outbidv1.DeviceLink
	for _, l := range links {
		a, hasA := number[l.GetA()]
		b, hasB := number[l.GetB()]
		if hasA && hasB {
			l.A, l.B = a, b
			among = append(among, l)
		}
	}
	return kept, among, nil
}

// entries returns the effective entries of a value of CUDA_VISIBLE_DEVICES.
func entries(list string) []string {
	var counted []string
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		if hides(entry) {
			break
		}
		counted = append(counted, entry)
	}
	return counted
}

func hides(entry string) bool {
	switch strings.ToLower(entry) {
	case "", "-1", "none", "void", "nodevfiles":
		return true
	}
	return false
}

func named(devices []*outbidv1.Device, entry string) (int32, error) {
	if strings.HasPrefix(entry, "MIG-") {
		return 0, fmt.Errorf("%s names %q: workers offer whole GPUs, not MIG instances", visibleDevices, entry)
	}
	if n, err := strconv.Atoi(entry); err == nil {
		if n < 0 || n >= len(devices) {
			return 0, fmt.Errorf("%s names GPU %d: the driver knows %d, numbered from 0", visibleDevices, n, len(devices))
		}
		return devices[n].GetIndex(), nil
	}
	found := -1
	for i, d := range devices {
		if !strings.HasPrefix(d.GetUuid(), entry) {
			continue
		}
		if found >= 0 {
			return 0, fmt.Errorf("%s names %q, which more than one GPU's UUID begins with", visibleDevices, entry)
		}
		found = i
	}
	if found < 0 {
		return 0, fmt.Errorf("%s names %q: the driver does not know a GPU with this UUID", visibleDevices, entry)
	}
	return devices[found].GetIndex(), nil
}
