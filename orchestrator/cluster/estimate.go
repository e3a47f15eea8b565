package cluster

import "math"

// facts are the known properties of a GPU type.
type facts struct {
	// tflops is the half-precision throughput of the tensor cores without sparsity, or the single-precision throughput
	// of GPUs without tensor cores.
	tflops float64
	// memory in GiB and the PCIe generation. For types with several sizes, the smallest.
	memory float64
	pcie   int
}

// gpus are common GPU types, by the names that workers give them, with the vendor's figures.
func gpus() map[string]facts {
	return map[string]facts{
		"k80": {4.4, 12, 3}, "m60": {4.8, 8, 3}, "p4": {5.5, 8, 3}, "p40": {11.8, 24, 3}, "p100": {21.2, 12, 3},
		"v100": {125, 16, 3}, "t4": {65, 16, 3}, "t400": {1.1, 4, 3}, "t1000": {2.5, 4, 3},
		"titanv": {110, 12, 3}, "titanrtx": {130.5, 24, 3}, "rtx2080ti": {107.6, 11, 3}, "rtx6000": {130.5, 24, 3}, "rtx8000": {130.5, 48, 3},
		"a2": {18, 16, 4}, "a10": {125, 24, 4}, "a10g": {70, 24, 4}, "a16": {17.9, 16, 4}, "a30": {165, 24, 4}, "a40": {149.7, 48, 4},
		"a100": {312, 40, 4}, "a2000": {63.9, 6, 4}, "a4000": {76.7, 16, 4}, "a5000": {111.1, 24, 4}, "a6000": {154.8, 48, 4},
		"rtx3060": {51, 12, 4}, "rtx3070": {81.3, 8, 4}, "rtx3080": {119, 10, 4}, "rtx3090": {142, 24, 4},
		"rtx4070": {117, 12, 4}, "rtx4080": {195, 16, 4}, "rtx4090": {330.3, 24, 4}, "rtx5090": {419, 32, 5},
		"l4": {121, 24, 4}, "l40": {181, 48, 4}, "l40s": {362, 48, 4},
		"h100": {989, 80, 5}, "h200": {989, 141, 5}, "h20": {148, 96, 5}, "gh200": {989, 96, 5}, "b200": {2250, 180, 5},
	}
}

// Estimates returns first estimates of the training speed of each device type, relative to the fastest, for use before
// measurements. They are HadarE's equation 10, PMI x batch size x PCIe scaling / (model's weight x data set's size).
// For one job, everything except PMI and PCIe scaling is the same on every device. PMI is the tensor TFLOP/s "and the
// GPU's VRAM capacity in a square root fashion". Here the TFLOP/s are divided by the root of the capacity, because the
// root of the whole quotient would rate a T4 like an A100.
//
// Capacity and PCIe generation are the driver's values if known. Types that are not among the common ones, such as
// CPUs, have no estimate.
func Estimates(nodes []Node) map[string]float64 {
	sums, devices := map[string]float64{}, map[string]int{}
	known := gpus()
	for i := range nodes {
		for _, d := range nodes[i].Devices {
			if f, ok := known[d.Type]; ok {
				sums[d.Type] += index(f, &d)
				devices[d.Type]++
			}
		}
	}
	fastest := 0.0
	for kind, n := range devices {
		sums[kind] /= float64(n)
		fastest = max(fastest, sums[kind])
	}
	for kind := range sums {
		sums[kind] /= fastest
	}
	return sums
}

// index returns PMI x PCIe scaling of a device.
func index(f facts, d *Device) float64 {
	if d.Memory > 0 {
		f.memory = float64(d.Memory) / (1 << 30)
	}
	if d.PCIe > 0 {
		f.pcie = d.PCIe
	}
	return f.tflops / math.Sqrt(f.memory) * pcieScaling(f.pcie)
}

// pcieScaling returns the fraction of its speed that a GPU keeps on a bus of a generation. The paper gives no values;
// these fall by a tenth for each halving of the bandwidth.
func pcieScaling(generation int) float64 {
	return math.Pow(0.9, float64(max(0, 5-generation)))
}
