package cli

import (
	"io"
	"slices"
	"strings"
)

// table aligns columns. Under a header it aligns numbers to the right, everything else to the left. Cells are plain
// text.
type table struct {
	header []string
	rows   [][]string
	indent string
	// width is the maximum line length, or 0 for no limit. The last column is shortened; others stay complete or are
	// omitted.
	width int
	// fold continues the last column on further lines instead of shortening it.
	fold bool
	// spare lists the headers of columns that are omitted, in that order, until the table fits.
	spare []string
}

const (
	// minLast is the minimum width of the last column.
	minLast = 12
	// minFold is the minimum width of a folded column.
	minFold = 24
)

// write prints the table with two spaces between columns.
func (t *table) write(w io.Writer) {
	t.leaveOut()
	lines := t.lines()
	widths, right := t.layout(lines)
	rest := t.lastRoom(widths)
	for _, cells := range lines {
		n := len(cells) - 1
		for i, part := range t.parts(cells, n, len(widths), rest) {
			if i > 0 {
				cells = make([]string, n+1)
			}
			cells = slices.Concat(cells[:n], []string{part})
			_, _ = io.WriteString(w, t.line(cells, widths, right))
		}
	}
}

func (t *table) lines() [][]string {
	if t.header == nil {
		return t.rows
	}
	return append([][]string{t.header}, t.rows...)
}

// parts returns the lines of a row's last cell.
func (t *table) parts(cells []string, n, columns, rest int) []string {
	switch {
	case n < 0:
		return nil
	case n != columns-1 || rest == 0:
		return cells[n:]
	case t.fold:
		return fold(cells[n], rest)
	}
	return []string{shorten(cells[n], rest)}
}

func (t *table) line(cells []string, widths []int, right []bool) string {
	var b strings.Builder
	b.WriteString(t.indent)
	for i, cell := range cells {
		pad := strings.Repeat(" ", max(0, widths[i]-textWidth(cell)))
		switch {
		case right[i]:
			b.WriteString(pad + cell)
		case i == len(cells)-1:
			b.WriteString(cell)
		default:
			b.WriteString(cell + pad)
		}
		if i < len(cells)-1 {
			b.WriteString("  ")
		}
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

// leaveOut drops spare columns until the table fits.
func (t *table) leaveOut() {
	for _, name := range t.spare {
		i := slices.Index(t.header, name)
		if widths, _ := t.layout(t.lines()); t.width == 0 || i < 0 || t.least(widths) <= t.width {
			return
		}
		t.header = slices.Delete(slices.Clone(t.header), i, i+1)
		for k, cells := range t.rows {
			if i < len(cells) {
				t.rows[k] = slices.Delete(slices.Clone(cells), i, i+1)
			}
		}
	}
}

// least returns the table's width if its last column is as narrow as possible.
func (t *table) least(widths []int) int {
	if len(widths) == 0 {
		return 0
	}
	last, enough := widths[len(widths)-1], minLast
	if t.fold {
		enough = minFold
	}
	return t.before(widths) + min(last, enough)
}

// before returns the width of everything before the last column.
func (t *table) before(widths []int) int {
	used := textWidth(t.indent)
	for _, w := range widths[:len(widths)-1] {
		used += w + 2
	}
	return used
}

// lastRoom returns the maximum width of the last column, or 0 for no limit.
func (t *table) lastRoom(widths []int) int {
	if t.width == 0 || len(widths) < 2 {
		return 0
	}
	return max(t.width-t.before(widths), minLast)
}

// layout returns each column's width, and whether it contains only numbers.
func (t *table) layout(lines [][]string) (widths []int, right []bool) {
	for _, cells := range lines {
		for i, cell := range cells {
			if i == len(widths) {
				widths, right = append(widths, 0), append(right, true)
			}
			widths[i] = max(widths[i], textWidth(cell))
		}
	}
	for _, cells := range t.rows {
		for i, cell := range cells {
			if cell != "" && cell != "-" && !strings.ContainsAny(cell[:1], "0123456789+-.") && cell != "NaN" {
				right[i] = false
			}
			if strings.ContainsAny(cell, "/ ") {
				right[i] = false
			}
		}
	}
	if t.header == nil || len(t.rows) == 0 {
		clear(right)
	}
	return widths, right
}

// textWidth counts characters; Outbid's own output does not contain wide ones.
func textWidth(s string) int { return len([]rune(s)) }

// fold breaks a text into lines of at most width characters: between words, and within longer words.
func fold(text string, width int) []string {
	if width < 1 || textWidth(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Split(text, " ") {
		if line != "" && textWidth(line)+1+textWidth(word) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		r := []rune(word)
		for len(r) > width {
			lines = append(lines, string(r[:width]))
			r = r[width:]
		}
		line = string(r)
	}
	return append(lines, line)
}

// shorten cuts a text to width characters.
func shorten(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	if width < 2 {
		return string(r[:max(width, 0)])
	}
	return string(r[:width-1]) + "…"
}

// dropLast removes the last column.
func (t *table) dropLast() {
	t.header = t.header[:len(t.header)-1]
	for i, row := range t.rows {
		t.rows[i] = row[:len(row)-1]
	}
}
