package inventory

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// four is a machine of four GPUs, each linked to the next.
func four() ([]*outbidv1.Device, []*outbidv1.DeviceLink, error) {
	var devices []*outbidv1.Device
	var links []*outbidv1.DeviceLink
	for i := range int32(4) {
		devices = append(devices, &outbidv1.Device{Index: i, Type: "h100", Uuid: fmt.Sprintf("GPU-%c%c-1", 'a'+i/2, 'a'+i)})
		if i > 0 {
			links = append(links, &outbidv1.DeviceLink{A: i - 1, B: i, Kind: "nvlink"})
		}
	}
	return devices, links, nil
}

// A worker that was given some of a machine's GPUs, by Ray, SLURM or a person, offers only these.
func TestAnInheritedListBoundsWhatIsOffered(t *testing.T) {
	for list, want := range map[string]string{
		"0":                  "gpu/GPU-aa-1",
		"2,1":                "gpu/GPU-ab-1 gpu/GPU-bc-1 1-0",
		"GPU-bd-1, GPU-bc-1": "gpu/GPU-bc-1 gpu/GPU-bd-1 1-0",
		"GPU-bd,0":           "gpu/GPU-aa-1 gpu/GPU-bd-1",
		"0,1,0":              "gpu/GPU-aa-1 gpu/GPU-ab-1 1-0",
		"1,-1,2":             "gpu/GPU-ab-1",
		"":                   "core/0",
		"none":               "core/0",
		"NoDevFiles":         "core/0",
		"4":                  `CUDA_VISIBLE_DEVICES names GPU 4: the driver knows 4, numbered from 0`,
		"-2":                 `CUDA_VISIBLE_DEVICES names GPU -2: the driver knows 4, numbered from 0`,
		"GPU-z":              `CUDA_VISIBLE_DEVICES names "GPU-z": the driver does not know a GPU with this UUID`,
		"GPU-b":              `CUDA_VISIBLE_DEVICES names "GPU-b", which more than one GPU's UUID begins with`,
		"MIG-1":              `CUDA_VISIBLE_DEVICES names "MIG-1": workers offer whole GPUs, not MIG instances`,
	} {
		t.Setenv("CUDA_VISIBLE_DEVICES", list)
		m, err := find("auto", restrictToVisible(four))
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", list, err, want)
			}
			continue
		}
		got := strings.Join(m.Names, " ")
		if strings.HasPrefix(want, "core/") {
			if !strings.HasPrefix(got, "core/") {
				t.Errorf("%q: offers %s, want CPU cores", list, got)
			}
			continue
		}
		for i, d := range m.Devices {
			if d.GetIndex() != int32(i) {
				t.Errorf("%q: device %d is number %d", list, i, d.GetIndex())
			}
		}
		for _, l := range m.Links {
			got += fmt.Sprintf(" %d-%d", l.GetB(), l.GetA())
		}
		if got != want {
			t.Errorf("%q: %s, want %s", list, got, want)
		}
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "none")
	if _, err := find("gpu", restrictToVisible(four)); !errors.Is(err, ErrNoGPU) || !strings.Contains(err.Error(), "CUDA_VISIBLE_DEVICES") {
		t.Errorf("hidden GPUs that are requested: %v", err)
	}
}
