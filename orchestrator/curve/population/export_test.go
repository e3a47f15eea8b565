package population

// Newest is the newest warped cost of a curve, 0 if it has none.
func (m *Model) Newest(curve int) float64 { return m.chain.After(m.warped[curve]).newest }
