// Package inventory finds the devices of a machine: NVIDIA GPUs with their links, otherwise CPU cores as slots, or
// devices that are only declared, for tests and demonstrations.
package inventory

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/container"
)

// CPU is the type of a device that is one CPU core.
const CPU = "cpu"

// ErrNoGPU is returned if GPUs were requested and none was found.
var ErrNoGPU = errors.New("no NVIDIA GPU was found")

// Machine describes the machine.
type Machine struct {
	// Devices are numbered from 0 without gaps.
	Devices []*outbidv1.Device
	Links   []*outbidv1.DeviceLink
	// CPUs is the number of cores that this process may use: by its affinity, or by the quota of its container if that
	// is lower, without fractions.
	CPUs int
	// Names are machine-wide names of the devices by index, such as gpu/GPU-1234 or core/3; "" for a declared device.
	Names []string
	// MemoryBytes is the machine's memory, or the limit of this process's container if that is lower.
	MemoryBytes int64
	// Given are the entries of this process's CUDA_VISIBLE_DEVICES. Declared GPUs correspond to these in order.
	Given []string
	// limits are those of this process's container.
	limits container.Limits
}

// gpus lists the GPUs that the driver knows: none without a driver. The error says why an installed driver does not
// work.
type gpus func() ([]*outbidv1.Device, []*outbidv1.DeviceLink, error)

// Find returns the machine with the devices in spec; see Parse. It only finds GPUs in this process's
// CUDA_VISIBLE_DEVICES, if that is set.
func Find(spec string) (Machine, error) { return find(spec, restrictToVisible(findGPUs)) }

func find(spec string, gpus gpus) (Machine, error) {
	items, err := Parse(spec)
	if err != nil {
		return Machine{}, err
	}
	m := Machine{Given: entries(os.Getenv(visibleDevices))}
	if m.limits, err = container.Read(); err != nil {
		return Machine{}, err
	}
	if m.MemoryBytes, err = memory(); err != nil {
		return Machine{}, err
	}
	m.CPUs = m.limits.WholeCPUs(runtime.NumCPU())
	if limit := m.limits.MemoryBytes; limit > 0 {
		m.MemoryBytes = min(m.MemoryBytes, limit)
	}
	for _, item := range items {
		if err := m.add(item, gpus); err != nil {
			return Machine{}, fmt.Errorf("devices %q: %w", spec, err)
		}
	}
	return m, nil
}

func (m *Machine) add(item Item, gpus gpus) error {
	switch {
	case item.Count > 0:
		m.declare(item)
	case item.Type == CPU:
		m.cores()
	default: // gpu or auto
		devices, links, err := gpus()
		if err != nil {
			return fmt.Errorf("find NVIDIA GPUs: %w", err)
		}
		if len(devices) == 0 && item.Type == "gpu" {
			return fmt.Errorf("%w: check that nvidia-smi lists it, that this binary was built with cgo and that "+
				"%s does not hide it; %q takes CPU cores instead", ErrNoGPU, visibleDevices, "cpu")
		}
		if len(devices) == 0 {
			m.cores()
		}
		for _, d := range devices {
			m.Names = append(m.Names, "gpu/"+d.GetUuid())
		}
		m.Devices = append(m.Devices, devices...)
		m.Links = append(m.Links, links...)
	}
	return nil
}

func (m *Machine) declare(item Item) {
	name := "declared " + item.Type
	if item.Type == CPU {
		name = "CPU core"
	}
	for range item.Count {
		d := &outbidv1.Device{Index: int32(len(m.Devices)), Type: item.Type, Name: name, Numa: -1}
		if item.Speed != 1 {
			d.Speed = item.Speed
		}
		m.Devices, m.Names = append(m.Devices, d), append(m.Names, "")
	}
}

// cores adds the CPU cores that this process may use.
func (m *Machine) cores() {
	first := len(m.Names)
	m.declare(Item{Type: CPU, Count: m.CPUs, Speed: 1})
	names := coreNames()
	if m.CPUs < len(names) {
		names = shareNames(m.limits.CPUGroup, m.CPUs)
	}
	for i := first; i < len(m.Names) && i-first < len(names); i++ {
		m.Names[i] = names[i-first]
	}
}

// shareNames returns names of the CPUs that a quota is worth. They belong to the control group with the quota, because
// its processes may run on every core: several limited containers of a machine do not take cores from each other, but
// workers in one container do.
func shareNames(group string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%s/%d", corePrefix, group, i)
	}
	return names
}

// Visible returns the value of CUDA_VISIBLE_DEVICES that shows exactly the leased devices of a machine. GPUs are
// named by UUID. A declared GPU is named by its number among the GPUs, or by the entry of given with that number,
// which is the GPU that the worker was started with. CPU cores are not listed.
func Visible(all []*outbidv1.Device, granted []int32, given []string) string {
	var shown []string
	gpu := 0
	for _, d := range all {
		if d.GetType() == CPU {
			continue
		}
		for _, index := range granted {
			if index != d.GetIndex() {
				continue
			}
			switch {
			case d.GetUuid() != "":
				shown = append(shown, d.GetUuid())
			case gpu < len(given):
				shown = append(shown, given[gpu])
			default:
				shown = append(shown, strconv.Itoa(gpu))
			}
		}
		gpu++
	}
	return strings.Join(shown, ",")
}

// Speed returns the relative speed of a set of devices: that of the slowest one.
func Speed(all []*outbidv1.Device, granted []int32) float64 {
	speed := 1.0
	for _, d := range all {
		for _, index := range granted {
			if index == d.GetIndex() && d.GetSpeed() > 0 {
				speed = min(speed, d.GetSpeed())
			}
		}
	}
	return speed
}
