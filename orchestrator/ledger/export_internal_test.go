package ledger

// StopArchive makes Archive fail before a step: write, verify, record, delete or clean.
func (l *JetStream) StopArchive(at string, err error) {
	l.archiveStep = func(step string) error {
		if step == at {
			return err
		}
		return nil
	}
}

// StopSnapshots makes a snapshot or changes fail before the nth time of a step: chunk, manifest or clean.
func StopSnapshots(l *JetStream, at string, nth int, err error) {
	l.snapshots.before = func(step string) error {
		if step != at {
			return nil
		}
		if nth--; nth >= 0 {
			return nil
		}
		return err
	}
}
