package inventory

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/container"
)

func TestTypeOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"NVIDIA H200":                                  "h200",
		"NVIDIA H200 141GB HBM3e":                      "h200",
		"Tesla V100-SXM2-32GB":                         "v100",
		"Tesla V100-PCIE-16GB":                         "v100",
		"Tesla V100S-PCIE-32GB":                        "v100s",
		"Tesla P100-PCIE-16GB":                         "p100",
		"Tesla K80":                                    "k80",
		"Tesla T4":                                     "t4",
		"NVIDIA A100-SXM4-80GB":                        "a100",
		"Mock NVIDIA A100-SXM4-40GB":                   "a100",
		"NVIDIA A100 80GB PCIe":                        "a100",
		"NVIDIA A800-SXM4-80GB":                        "a800",
		"NVIDIA A10G":                                  "a10g",
		"NVIDIA A10":                                   "a10",
		"NVIDIA L4":                                    "l4",
		"NVIDIA L40S":                                  "l40s",
		"NVIDIA H100 80GB HBM3":                        "h100",
		"NVIDIA H100 PCIe":                             "h100",
		"NVIDIA H100 NVL":                              "h100",
		"NVIDIA H20":                                   "h20",
		"NVIDIA GH200 480GB":                           "gh200",
		"NVIDIA B200":                                  "b200",
		"NVIDIA GB200":                                 "gb200",
		"NVIDIA GeForce RTX 3090":                      "rtx3090",
		"NVIDIA GeForce RTX 3080 Ti":                   "rtx3080ti",
		"NVIDIA GeForce RTX 4090 Laptop GPU":           "rtx4090laptop",
		"NVIDIA GeForce RTX 4060 Ti 16GB":              "rtx4060ti",
		"NVIDIA GeForce GTX 1080 Ti":                   "gtx1080ti",
		"GeForce GTX 1660 SUPER":                       "gtx1660super",
		"NVIDIA TITAN RTX":                             "titanrtx",
		"TITAN Xp":                                     "titanxp",
		"NVIDIA RTX A6000":                             "a6000",
		"NVIDIA RTX 6000 Ada Generation":               "rtx6000ada",
		"Quadro RTX 6000":                              "rtx6000",
		"Quadro P5000":                                 "p5000",
		"NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtxpro6000",
		"NVIDIA RTX PRO 6000 Blackwell Max-Q":          "rtxpro6000",
		"NVIDIA Graphics Device":                       "gpu",
		"":                                             "gpu",
		"NVIDIA " + strings.Repeat("Very Long Name 9", 10): "verylongname9verylongname9verylo",
	} {
		if got := TypeOf(name); got != want {
			t.Errorf("TypeOf(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][]Item{
		"":                 {{Type: "auto", Speed: 1}},
		"auto":             {{Type: "auto", Speed: 1}},
		"gpu":              {{Type: "gpu", Speed: 1}},
		"cpu":              {{Type: "cpu", Speed: 1}},
		"cpu:4":            {{Type: "cpu", Count: 4, Speed: 1}},
		"v100:2,k80:1@.25": {{Type: "v100", Count: 2, Speed: 1}, {Type: "k80", Count: 1, Speed: 0.25}},
		" v100:2 , cpu:1 ": {{Type: "v100", Count: 2, Speed: 1}, {Type: "cpu", Count: 1, Speed: 1}},
		"gpu,cpu:2":        {{Type: "gpu", Speed: 1}, {Type: "cpu", Count: 2, Speed: 1}},
		"rtx3090:8@1":      {{Type: "rtx3090", Count: 8, Speed: 1}},
	} {
		got, err := Parse(spec)
		if err != nil {
			t.Errorf("Parse(%q): %v", spec, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Parse(%q): %s", spec, diff)
		}
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"v100":          `"v100" has no count`,
		"v100:":         `count "" of "v100:"`,
		"v100:0":        `count "0"`,
		"v100:-1":       `count "-1"`,
		"v100:two":      `count "two" of "v100:two": want a whole number from 1 to 4096`,
		"v100:5000":     `count "5000"`,
		"v100:2@":       `speed "" of "v100:2@": want a number above 0 and at most 1`,
		"v100:2@0":      `speed "0"`,
		"v100:2@1.5":    `speed "1.5"`,
		"v100:2@NaN":    `speed "NaN"`,
		"V100:2":        `type "V100": want lower-case`,
		"v100:2,,k80:1": "an empty part",
		"auto:3":        "auto must not have a count",
		"gpu:3":         "gpu must not have a count",
		"auto,gpu":      "would count devices twice",
		"cpu@0.5":       `type "cpu@0.5"`,
		"a:4096,b:1":    "more than 4096 devices",
	} {
		_, err := Parse(spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", spec, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, spec := range []string{"v100:2,k80:1@0.25", "cpu:4", "gpu", "auto", "x:1@1e-3", "a:1,b:2,,", "@:,"} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		items, err := Parse(spec)
		if err != nil {
			if strings.ContainsRune(err.Error(), '\n') {
				t.Errorf("error of %q is more than one line: %v", spec, err)
			}
			return
		}
		total := 0
		for _, item := range items {
			total += item.Count
			if item.Count < 0 || !(item.Speed > 0 && item.Speed <= 1) || item.Type == "" {
				t.Errorf("Parse(%q) gave %+v", spec, item)
			}
		}
		if len(items) == 0 || total > MaxDevices {
			t.Errorf("Parse(%q) gave %d items, %d devices", spec, len(items), total)
		}
	})
}

func noGPUs() ([]*outbidv1.Device, []*outbidv1.DeviceLink, error) { return nil, nil, nil }

func twoGPUs() ([]*outbidv1.Device, []*outbidv1.DeviceLink, error) {
	return []*outbidv1.Device{{Index: 0, Type: "h200", Uuid: "GPU-a"}, {Index: 1, Type: "h200", Uuid: "GPU-b"}},
		[]*outbidv1.DeviceLink{{A: 0, B: 1, Kind: "nvlink", Lanes: 18}}, nil
}

func TestFind(t *testing.T) {
	t.Parallel()
	limits, err := container.Read()
	if err != nil {
		t.Fatal(err)
	}
	cores := limits.WholeCPUs(runtime.NumCPU())
	for name, tc := range map[string]struct {
		spec  string
		gpus  gpus
		want  string
		count int
		err   string
	}{
		"auto without GPUs is CPU": {spec: "auto", gpus: noGPUs, want: "cpu", count: cores},
		"auto with GPUs":           {spec: "", gpus: twoGPUs, want: "h200", count: 2},
		"cpu though there are GPU": {spec: "cpu", gpus: twoGPUs, want: "cpu", count: cores},
		"declared":                 {spec: "v100:3", gpus: twoGPUs, want: "v100", count: 3},
		"gpu without GPUs":         {spec: "gpu", gpus: noGPUs, err: "no NVIDIA GPU was found"},
		"bad":                      {spec: "v100", gpus: noGPUs, err: "has no count"},
		"driver fails": {
			spec: "gpu", err: "version mismatch",
			gpus: func() ([]*outbidv1.Device, []*outbidv1.DeviceLink, error) {
				return nil, nil, errors.New("version mismatch")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := find(tc.spec, tc.gpus)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Devices) != tc.count || m.CPUs != cores || m.MemoryBytes <= 0 {
				t.Fatalf("found %d devices, %d CPUs, %d bytes", len(m.Devices), m.CPUs, m.MemoryBytes)
			}
			for i, d := range m.Devices {
				if d.GetIndex() != int32(i) || d.GetType() != tc.want {
					t.Errorf("device %d: %v", i, d)
				}
			}
		})
	}
}

func TestFindOnThisMachine(t *testing.T) {
	t.Parallel()
	m, err := Find("auto")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Devices) == 0 {
		t.Error("no devices at all")
	}
}

func TestVisibleAndSpeed(t *testing.T) {
	t.Parallel()
	real, _, _ := twoGPUs()
	m, err := find("v100:2,k80:1@0.25,cpu:2@0.5", noGPUs)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		devices []*outbidv1.Device
		granted []int32
		given   []string
		want    string
		speed   float64
	}{
		{real, []int32{1}, nil, "GPU-b", 1},
		{real, []int32{1, 0}, []string{"4", "5"}, "GPU-a,GPU-b", 1},
		{real, nil, nil, "", 1},
		{m.Devices, []int32{0, 2}, nil, "0,2", 0.25},
		{m.Devices, []int32{3}, []string{"4", "5", "6"}, "", 0.5},
		{m.Devices, []int32{1}, nil, "1", 1},
		{m.Devices, []int32{0, 1}, []string{"4", "GPU-z"}, "4,GPU-z", 1},
		{m.Devices, []int32{2}, []string{"4", "5"}, "2", 0.25},
	} {
		if got := Visible(tc.devices, tc.granted, tc.given); got != tc.want {
			t.Errorf("Visible(%v) = %q, want %q", tc.granted, got, tc.want)
		}
		if got := Speed(tc.devices, tc.granted); got != tc.speed {
			t.Errorf("Speed(%v) = %v, want %v", tc.granted, got, tc.speed)
		}
	}
}

// The value of CUDA_VISIBLE_DEVICES has as many entries as GPUs are leased, whatever the mix.
func TestVisibleCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var devices []*outbidv1.Device
		var granted []int32
		want := 0
		for i := range rapid.IntRange(1, 8).Draw(t, "n") {
			kind := rapid.SampledFrom([]string{"cpu", "v100", "k80"}).Draw(t, "type")
			devices = append(devices, &outbidv1.Device{Index: int32(i), Type: kind})
			if rapid.Bool().Draw(t, "granted") {
				granted = append(granted, int32(i))
				if kind != CPU {
					want++
				}
			}
		}
		got := strings.FieldsFunc(Visible(devices, granted, nil), func(r rune) bool { return r == ',' })
		if len(got) != want {
			t.Fatalf("%d shown, want %d", len(got), want)
		}
	})
}
