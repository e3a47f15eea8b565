package ledger

import (
	"bytes"
	"context"
	"fmt"
	"io"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Export writes every batch of a ledger as WriteLine does, and says how many there were. Each is read again before it
// counts: what a newer outbid wrote, and this one does not know in full, is an error and not left out.
func Export(ctx context.Context, l Ledger, w io.Writer) (batches uint64, err error) {
	var text bytes.Buffer
	err = l.Read(ctx, 1, func(b *outbidv1.Batch) error {
		text.Reset()
		if err := WriteLine(&text, b); err != nil {
			return err
		}
		if _, err := parseLine(b.GetSeq(), b.GetPrevHash(), text.Bytes()); err != nil {
			return fmt.Errorf("ledger batch %d holds what this version does not know: export it with the one that wrote it: %w",
				b.GetSeq(), err)
		}
		if _, err := w.Write(text.Bytes()); err != nil {
			return fmt.Errorf("export ledger batch %d: %w", b.GetSeq(), err)
		}
		batches++
		return nil
	})
	return batches, err
}
