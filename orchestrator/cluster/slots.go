package cluster

// FreeSlots counts a node's free devices of a type by slot and appends the counts above 0 to slots; "" means all types.
func (c *Capacity) FreeSlots(node int, kind string, slots []int) []int {
	r := &c.rooms[node]
	var count [64]int
	last := 0
	for d, held := range r.held {
		if held || kind != "" && c.types[r.kind[d]] != kind {
			continue
		}
		slot := min(max(c.nodes[node].Devices[d].Slot, 0), len(count)-1)
		count[slot]++
		last = max(last, slot)
	}
	for _, n := range count[:last+1] {
		if n > 0 {
			slots = append(slots, n)
		}
	}
	return slots
}
