//go:build linux && cgo

package inventory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const sysPCI = "/sys/bus/pci/devices"

func findGPUs() ([]*outbidv1.Device, []*outbidv1.DeviceLink, error) {
	return listGPUs(nvml.New(), sysPCI)
}

// listGPUs lists the GPUs that the driver's library reports. A missing library is not an error: the machine does not
// have GPUs.
func listGPUs(lib nvml.Interface, sys string) (_ []*outbidv1.Device, _ []*outbidv1.DeviceLink, err error) {
	switch ret := lib.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_FUNCTION_NOT_FOUND,
		nvml.ERROR_NO_PERMISSION:
		return nil, nil, nil
	default:
		return nil, nil, fmt.Errorf("initialize the NVIDIA driver: %w", ret)
	}
	defer func() {
		if ret := lib.Shutdown(); ret != nvml.SUCCESS {
			err = errors.Join(err, fmt.Errorf("shut down the NVIDIA driver: %w", ret))
		}
	}()
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, nil, fmt.Errorf("count GPUs: %w", ret)
	}
	handles := make([]nvml.Device, count)
	devices := make([]*outbidv1.Device, count)
	for i := range count {
		if handles[i], ret = lib.DeviceGetHandleByIndex(i); ret != nvml.SUCCESS {
			return nil, nil, fmt.Errorf("open GPU %d: %w", i, ret)
		}
		if devices[i], err = describe(i, handles[i], sys); err != nil {
			return nil, nil, err
		}
	}
	return devices, links(lib, handles, devices), nil
}

func describe(index int, h nvml.Device, sys string) (*outbidv1.Device, error) {
	d := &outbidv1.Device{Index: int32(index), Numa: -1}
	full, ret := h.GetName()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("name of GPU %d: %w", index, ret)
	}
	d.Name, d.Type = sanitize.Line(full, limits.Name), TypeOf(full)
	uuid, ret := h.GetUUID()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("UUID of GPU %d: %w", index, ret)
	}
	d.Uuid = sanitize.Line(uuid, limits.Name)
	if m, ret := h.GetMemoryInfo(); ret == nvml.SUCCESS { // unknown for GPUs that share the machine's memory
		d.MemoryBytes = int64(m.Total)
	}
	if generation, ret := h.GetMaxPcieLinkGeneration(); ret == nvml.SUCCESS {
		d.PcieGeneration = int32(generation)
	}
	if pci, ret := h.GetPciInfo(); ret == nvml.SUCCESS {
		d.Pci = busID(pci)
		d.Numa = numa(sys, d.GetPci())
	}
	return d, nil
}

// busID returns a PCI address in the kernel's form, such as 0000:3b:00.0; in the driver's form the domain has eight
// digits.
func busID(pci nvml.PciInfo) string {
	var b strings.Builder
	for _, c := range pci.BusId {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	id := sanitize.Line(strings.ToLower(b.String()), limits.Name)
	if domain, rest, ok := strings.Cut(id, ":"); ok && len(domain) == 8 {
		return strings.TrimPrefix(domain[:4], "0000") + domain[4:] + ":" + rest
	}
	return id
}

func numa(sys, pci string) int32 {
	if pci == "" {
		return -1
	}
	text, err := os.ReadFile(filepath.Join(sys, pci, "numa_node"))
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

// links returns how every two GPUs are connected: by NVLink (directly or through switches), or by the PCIe level that
// they share.
func links(lib nvml.Interface, handles []nvml.Device, devices []*outbidv1.Device) []*outbidv1.DeviceLink {
	lanes := nvlinks(lib, handles, devices)
	tree := lib.Extensions().LookupSymbol("nvmlDeviceGetTopologyCommonAncestor") == nil
	var all []*outbidv1.DeviceLink
	for a := range handles {
		for b := a + 1; b < len(handles); b++ {
			l := &outbidv1.DeviceLink{A: int32(a), B: int32(b)}
			if n := lanes[[2]int{a, b}]; n > 0 {
				l.Kind, l.Lanes = "nvlink", int32(n)
			} else if tree {
				level, ret := handles[a].GetTopologyCommonAncestor(handles[b])
				if ret != nvml.SUCCESS {
					continue
				}
				l.Kind = kind(level)
			} else {
				continue
			}
			all = append(all, l)
		}
	}
	return all
}

// kind returns nvidia-smi's name of a level of the PCIe tree. Two GPUs on one board are behind one switch.
func kind(level nvml.GpuTopologyLevel) string {
	switch level {
	case nvml.TOPOLOGY_INTERNAL, nvml.TOPOLOGY_SINGLE:
		return "pix"
	case nvml.TOPOLOGY_MULTIPLE:
		return "pxb"
	case nvml.TOPOLOGY_HOSTBRIDGE:
		return "phb"
	case nvml.TOPOLOGY_NODE:
		return "node"
	default:
		return "sys"
	}
}

// nvlinks counts the NVLink links between every two GPUs a < b. GPUs with links to an NVSwitch reach each other with
// as many links as the one with fewer of them has.
func nvlinks(lib nvml.Interface, handles []nvml.Device, devices []*outbidv1.Device) map[[2]int]int {
	// Calling a function that an old driver does not have would crash the process, so check first.
	ext := lib.Extensions()
	for _, symbol := range []string{"nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkRemotePciInfo_v2"} {
		if ext.LookupSymbol(symbol) != nil {
			return nil
		}
	}
	typed := ext.LookupSymbol("nvmlDeviceGetNvLinkRemoteDeviceType") == nil
	lanes := make(map[[2]int]int)
	switched := make([]int, len(handles))
	for a, h := range handles {
		for link := range nvml.NVLINK_MAX_LINKS {
			state, ret := h.GetNvLinkState(link)
			if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT {
				break // no further links
			}
			if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
				continue
			}
			if typed {
				if t, ret := h.GetNvLinkRemoteDeviceType(link); ret == nvml.SUCCESS && t == nvml.NVLINK_DEVICE_TYPE_SWITCH {
					switched[a]++
					continue
				}
			}
			if b := peer(h, link, devices); b > a {
				lanes[[2]int{a, b}]++
			}
		}
	}
	for a := range handles {
		for b := a + 1; b < len(handles); b++ {
			if n := min(switched[a], switched[b]); n > 0 {
				lanes[[2]int{a, b}] += n
			}
		}
	}
	return lanes
}

// peer returns the index of the GPU at the other end of a link, or -1 if it is not one of devices.
func peer(h nvml.Device, link int, devices []*outbidv1.Device) int {
	pci, ret := h.GetNvLinkRemotePciInfo(link)
	if ret != nvml.SUCCESS {
		return -1
	}
	id := busID(pci)
	for i, d := range devices {
		if id != "" && d.GetPci() == id {
			return i
		}
	}
	return -1
}
