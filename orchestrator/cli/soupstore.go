package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// soupPiece is the amount of a soup in one message.
const soupPiece = 256 << 10

// publishSoup stores a soup with the sweep, and returns it as the server stored it.
func (c *connection) publishSoup(ctx context.Context, sweep string, made *madeSoup) (*outbidv1.Soup, error) {
	f, err := os.Open(made.file)
	if err != nil {
		return nil, fmt.Errorf("read the soup back: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("read the soup back: %w", err)
	}
	soup := &outbidv1.Soup{Bytes: size, Sha256: hex.EncodeToString(hash.Sum(nil)), Metric: made.metric}
	for _, t := range made.trials {
		soup.Parts = append(soup.Parts, &outbidv1.SoupPart{Trial: t.Trial, Metric: t.Metric, Soup: t.Soup, Kept: t.Kept, Note: t.Note})
	}
	stream, err := c.PutSoup(ctx)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, soupPiece)
	piece := &outbidv1.PutSoupRequest{Sweep: sweep, Soup: soup}
	for ; ; piece = new(outbidv1.PutSoupRequest) {
		n, err := io.ReadFull(f, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("read the soup back: %w", err)
		}
		piece.Data = slices.Clone(buf[:n]) // gRPC may still be sending the previous buffer
		if sendErr := stream.Send(piece); sendErr != nil || err != nil {
			break // CloseAndRecv returns the error
		}
	}
	answer, err := stream.CloseAndRecv()
	return answer.GetSoup(), err
}

// fetchSoup writes a soup of a sweep to a file, atomically and only if its hash matches the ledger.
func (rs *resultCommands) fetchSoup(ctx context.Context, c *connection, sweep *outbidv1.Sweep, o soupOptions) error {
	stream, err := c.GetSoup(ctx, &outbidv1.GetSoupRequest{Sweep: sweep.GetId(), Number: o.get})
	if err != nil {
		return err
	}
	var soup *outbidv1.Soup
	err = receive(o.to, func() ([]byte, error) {
		piece, err := stream.Recv()
		if piece.GetSoup() != nil {
			soup = piece.GetSoup()
		}
		return piece.GetData(), err
	}, func(got string) error {
		if got != soup.GetSha256() {
			return fmt.Errorf("soup %d arrived damaged: its SHA-256 is %s, not %s; try again", soup.GetNumber(), got, soup.GetSha256())
		}
		return nil
	})
	if err != nil {
		return err
	}
	rs.notef("wrote %s: soup %d of %s, %s", o.to, soup.GetNumber(), sweep.GetId(), formatBytes(soup.GetBytes()))
	var list []*ingredient
	for _, p := range soup.GetParts() {
		list = append(list, &ingredient{Trial: p.GetTrial(), Metric: p.GetMetric(), Soup: p.Soup, Kept: p.GetKept(), Note: p.Note})
	}
	return rs.listIngredients(o.out, list)
}

// soupView is a soup of a sweep.
type soupView struct {
	Number int32      `json:"number"`
	Metric *number    `json:"metric"`
	Bytes  int64      `json:"bytes"`
	SHA256 string     `json:"sha256"`
	Time   *time.Time `json:"time"`
	Actor  string     `json:"actor"`
	Trials []int32    `json:"trials"`
	Tried  int        `json:"tried"`
}

func viewSoup(s *outbidv1.Soup) soupView {
	v := soupView{
		Number: s.GetNumber(), Bytes: s.GetBytes(), SHA256: s.GetSha256(), Time: viewTime(s.GetTime()), Actor: s.GetActor(),
		Trials: []int32{}, Tried: len(s.GetParts()),
	}
	if s.Metric != nil {
		v.Metric = new(number(s.GetMetric()))
	}
	for _, p := range s.GetParts() {
		if p.GetKept() {
			v.Trials = append(v.Trials, p.GetTrial())
		}
	}
	return v
}

// soupLine describes a soup: its metric, its trials and its author.
func (q *queryCommands) soupLine(metric string, v soupView) string {
	line := fmt.Sprintf("%d: ", v.Number)
	if v.Metric != nil {
		line += fmt.Sprintf("%s %s, ", clean(metric), formatMetric(float64(*v.Metric)))
	}
	trials := strings.Trim(fmt.Sprint(v.Trials), "[]")
	return line + fmt.Sprintf("of trials %s, of %d tried, %s, %s%s", trials, v.Tried, formatBytes(v.Bytes), q.when(v.Time), by(v.Actor))
}

// folderPrefix is the prefix of the folders in which soups are made.
const folderPrefix = ".outbid-soup-"

// workFolder creates a folder in place. It also removes folders that a killed command left there; their locks are free.
func workFolder(place string) (dir string, remove func(), err error) {
	old, _ := filepath.Glob(filepath.Join(place, folderPrefix+"*", "lock"))
	for _, lock := range old {
		if f, err := os.OpenFile(lock, os.O_RDWR, 0); err == nil {
			if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				_ = os.RemoveAll(filepath.Dir(lock)) // a failure is retried another time
			}
			_ = f.Close() // this also releases the lock
		}
	}
	if dir, err = os.MkdirTemp(place, folderPrefix+"*"); err != nil {
		return "", nil, err
	}
	drop := func() { _ = os.RemoveAll(dir) } // the next soup removes what is left
	f, err := os.Create(filepath.Join(dir, "new"))
	if err == nil {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err == nil { // lock it before the rename to the name that others look for
			err = os.Rename(f.Name(), filepath.Join(dir, "lock"))
		}
	}
	if err != nil {
		drop()
		return "", nil, err
	}
	return dir, func() { drop(); _ = f.Close() }, nil
}
