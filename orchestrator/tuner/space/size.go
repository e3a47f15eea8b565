package space

// Largest returns the size in bytes of the largest configuration, as Canonical writes it, and the field of the
// parameter that contributes most. Of the parameters with a condition it counts only the largest, because conditions
// may exclude each other. The result is therefore a lower bound.
func (s *Space) Largest() (bytes int, field string) {
	total, optional, most := 2, 0, 0
	for _, l := range s.leaves {
		value, err := canonical(largestValue(l.dist))
		if err != nil {
			continue
		}
		size := len(value) + len(l.keys[len(l.keys)-1]) + len(`"":,`)
		if size > most {
			most, field = size, l.field
		}
		if len(l.when) > 0 {
			optional = max(optional, size)
		} else {
			total += size
		}
	}
	return total + optional, field
}

// largestValue returns the value of a parameter that takes the most bytes. Numbers take so few that any will do.
func largestValue(d dist) any {
	switch d := d.(type) {
	case choiceDist:
		var largest any
		most := -1
		for _, v := range d.values {
			if text, err := canonical(v); err == nil && len(text) > most {
				largest, most = v, len(text)
			}
		}
		return largest
	case constDist:
		return d.value
	default:
		return int64(0)
	}
}
