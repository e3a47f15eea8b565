package checkpoint

// SetPieceForTest has streams of the average compute so many bytes at once.
func (a *Average) SetPieceForTest(bytes int64) { a.piece = bytes }

// ExactMean is what means are tested against.
var ExactMean = exactMean
