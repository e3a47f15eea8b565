//go:build linux && cgo

package inventory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func pciOf(i int) (pci nvml.PciInfo) {
	for n, c := range fmt.Sprintf("00000000:%02X:00.0", i+16) {
		pci.BusId[n] = int8(c)
	}
	return pci
}

// dgx returns a machine of 8 GPUs whose links a test can set.
func dgx(t *testing.T, links func(gpu, link int) (state nvml.EnableState, peer int, ret nvml.Return)) *dgxa100.Server {
	t.Helper()
	server := dgxa100.New()
	ext := &mock.ExtendedInterface{LookupSymbolFunc: func(string) error { return nil }}
	server.ExtensionsFunc = func() nvml.ExtendedInterface { return ext }
	for i, d := range server.Devices {
		device, ok := d.(*dgxa100.Device)
		if !ok {
			t.Fatalf("mock device is a %T", d)
		}
		device.GetMaxPcieLinkGenerationFunc = func() (int, nvml.Return) { return 4, nvml.SUCCESS }
		device.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return pciOf(i), nvml.SUCCESS }
		device.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
			state, _, ret := links(i, link)
			return state, ret
		}
		device.GetNvLinkRemoteDeviceTypeFunc = func(link int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			if _, peer, _ := links(i, link); peer < 0 {
				return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
			}
			return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
		}
		device.GetNvLinkRemotePciInfoFunc = func(link int) (nvml.PciInfo, nvml.Return) {
			_, peer, _ := links(i, link)
			return pciOf(peer), nvml.SUCCESS
		}
		device.GetTopologyCommonAncestorFunc = func(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
			j, _ := other.GetIndex()
			switch {
			case i/2 == j/2:
				return nvml.TOPOLOGY_SINGLE, nvml.SUCCESS
			case i/4 == j/4:
				return nvml.TOPOLOGY_NODE, nvml.SUCCESS
			default:
				return nvml.TOPOLOGY_SYSTEM, nvml.SUCCESS
			}
		}
	}
	return server
}

func noLinks(int, int) (nvml.EnableState, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED }

// Names from a driver that are not UTF-8, or too long, would otherwise prevent the node's introduction from being
// sent.
func TestNamesOfADriverThatAreNotText(t *testing.T) {
	t.Parallel()
	server := dgx(t, noLinks)
	device, ok := server.Devices[0].(*dgxa100.Device)
	if !ok {
		t.Fatal("no mock device")
	}
	device.GetNameFunc = func() (string, nvml.Return) { return "NVIDIA A100\xff" + strings.Repeat("x", 1000), nvml.SUCCESS }
	device.GetUUIDFunc = func() (string, nvml.Return) { return "GPU-\xfe", nvml.SUCCESS }
	device.GetPciInfoFunc = func() (pci nvml.PciInfo, _ nvml.Return) {
		pci.BusId[0] = -1
		return pci, nvml.SUCCESS
	}
	devices, _, err := listGPUs(server, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proto.Marshal(devices[0]); err != nil || len(devices[0].GetName()) > limits.Name {
		t.Errorf("%v: %q", err, devices[0].GetName())
	}
}

func TestListGPUs(t *testing.T) {
	t.Parallel()
	sys := t.TempDir()
	if err := os.MkdirAll(filepath.Join(sys, "0000:11:00.0"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sys, "0000:11:00.0", "numa_node"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	devices, links, err := listGPUs(dgx(t, noLinks), sys)
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 8 || len(links) != 28 {
		t.Fatalf("%d devices, %d links", len(devices), len(links))
	}
	d := devices[1]
	if d.GetType() != "a100" || d.GetMemoryBytes() != 40<<30 || d.GetPcieGeneration() != 4 || d.GetPci() != "0000:11:00.0" || d.GetNuma() != 1 ||
		d.GetUuid() == "" || d.GetIndex() != 1 {
		t.Errorf("device 1 is %v", d)
	}
	if devices[0].GetNuma() != -1 {
		t.Errorf("device 0 has NUMA node %d, want -1 for unknown", devices[0].GetNuma())
	}
	kinds := map[[2]int32]string{}
	for _, l := range links {
		kinds[[2]int32{l.GetA(), l.GetB()}] = l.GetKind()
	}
	if kinds[[2]int32{0, 1}] != "pix" || kinds[[2]int32{0, 2}] != "node" || kinds[[2]int32{0, 7}] != "sys" {
		t.Errorf("kinds %v", kinds)
	}
}

func TestNVLink(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		links func(int, int) (nvml.EnableState, int, nvml.Return)
		want  map[[2]int32]int32
	}{
		"NVSwitch": {
			links: func(_, link int) (nvml.EnableState, int, nvml.Return) {
				if link >= 12 {
					return 0, 0, nvml.ERROR_INVALID_ARGUMENT
				}
				return nvml.FEATURE_ENABLED, -1, nvml.SUCCESS
			},
			want: map[[2]int32]int32{{0, 1}: 12, {0, 7}: 12, {3, 5}: 12},
		},
		"pairs, one lane down": {
			links: func(gpu, link int) (nvml.EnableState, int, nvml.Return) {
				switch {
				case link >= 4:
					return 0, 0, nvml.ERROR_INVALID_ARGUMENT
				case link == 3:
					return nvml.FEATURE_DISABLED, gpu ^ 1, nvml.SUCCESS
				default:
					return nvml.FEATURE_ENABLED, gpu ^ 1, nvml.SUCCESS
				}
			},
			want: map[[2]int32]int32{{0, 1}: 3, {6, 7}: 3, {0, 2}: 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, links, err := listGPUs(dgx(t, tc.links), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			byPair := map[[2]int32]*outbidv1.DeviceLink{}
			for _, l := range links {
				byPair[[2]int32{l.GetA(), l.GetB()}] = l
			}
			for pair, lanes := range tc.want {
				l := byPair[pair]
				if l.GetLanes() != lanes || (l.GetKind() == "nvlink") != (lanes > 0) {
					t.Errorf("link %v is %v, want %d lanes", pair, l, lanes)
				}
			}
		})
	}
}

func TestNoDriver(t *testing.T) {
	t.Parallel()
	for _, ret := range []nvml.Return{nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED} {
		server := dgxa100.New()
		server.InitFunc = func() nvml.Return { return ret }
		devices, links, err := listGPUs(server, sysPCI)
		if len(devices) != 0 || len(links) != 0 || err != nil {
			t.Errorf("%v: %v, %v, %v", ret, devices, links, err)
		}
	}
	server := dgxa100.New()
	server.InitFunc = func() nvml.Return { return nvml.ERROR_LIB_RM_VERSION_MISMATCH }
	if _, _, err := listGPUs(server, sysPCI); !errors.Is(err, nvml.ERROR_LIB_RM_VERSION_MISMATCH) {
		t.Errorf("version mismatch: %v", err)
	}
}

// An old driver does not have newer functions, and calling one would crash the process.
func TestOldDriver(t *testing.T) {
	t.Parallel()
	server := dgx(t, noLinks)
	ext := &mock.ExtendedInterface{LookupSymbolFunc: func(string) error { return errors.New("undefined symbol") }}
	server.ExtensionsFunc = func() nvml.ExtendedInterface { return ext }
	devices, links, err := listGPUs(server, sysPCI)
	if err != nil || len(devices) != 8 || len(links) != 0 {
		t.Errorf("%d devices, %d links, %v", len(devices), len(links), err)
	}
}
