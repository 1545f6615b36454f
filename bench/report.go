package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report is the result of a run, with its machine and time.
type report struct {
	Machine string    `json:"machine"`
	Date    time.Time `json:"date"`
	Quick   bool      `json:"quick"`
	Load    string    `json:"load_average"`  // of the minute before the run
	Foreign float64   `json:"foreign_cores"` // average number of cores that other processes used
	Rows    []result  `json:"rows"`

	busy, own time.Duration // clocks at the start of the run
}

// result is the measured values of one row, in the row's unit except for
// ratios.
type result struct {
	Label    string    `json:"label"`
	Must     string    `json:"must"`
	Aim      string    `json:"aim"`
	Unit     string    `json:"unit"`
	Beside   float64   `json:"beside"`   // median
	Gateway  float64   `json:"gateway"`  // median
	Measured float64   `json:"measured"` // median of pairs
	Pairs    []float64 `json:"pairs"`
	Verdict  verdict   `json:"verdict"`

	row row
}

type verdict string

const (
	reached verdict = "aim reached"
	held    verdict = "held"
	nearly  verdict = "missed by less than noise" // only in a quick run
	missed  verdict = "MISSED"
	shown   verdict = "shown" // no bound
)

// tolerance is the part by which a quick run may miss a bound, because its samples
// are short.
const tolerance = 0.15

func newReport(quick bool) (*report, error) {
	r := &report{Machine: machine(), Date: time.Now().UTC(), Quick: quick, Load: loadAverage()}
	var err error
	if r.busy, err = busyTime(); err != nil {
		return nil, err
	}
	r.own, err = ownTime()
	return r, err
}

// finish records the load of other processes, after all processes of the run
// have ended.
func (r *report) finish() error {
	busy, err := busyTime()
	if err != nil {
		return err
	}
	own, err := ownTime()
	if err != nil {
		return err
	}
	r.Foreign = max(0, ((busy-r.busy)-(own-r.own)).Seconds()/time.Since(r.Date).Seconds())
	return nil
}

// add evaluates the pairs of a measure.
func (r *report) add(m measure, pairs []pair) {
	for _, row := range m.rows {
		out := result{Label: row.label, Must: row.bound(row.must), Aim: row.bound(row.aim), Unit: row.unit.name, row: row}
		beside, gateway, compared := make([]float64, len(pairs)), make([]float64, len(pairs)), make([]float64, len(pairs))
		for i, p := range pairs {
			b, g := row.figure(p[0]), row.figure(p[1])
			beside[i], gateway[i] = b/row.unit.scale, g/row.unit.scale
			compared[i] = row.compared(b, g)
		}
		out.Beside, out.Gateway = median(beside), median(gateway)
		out.Verdict = row.judge(median(compared), r.Quick)
		for _, c := range compared {
			out.Pairs = append(out.Pairs, c/row.comparedUnit().scale)
		}
		out.Measured = median(out.Pairs)
		r.Rows = append(r.Rows, out)
	}
}

func (w row) compared(beside, gateway float64) float64 {
	switch w.compare {
	case ratio:
		return gateway / beside
	case added:
		return gateway - beside
	}
	return gateway
}

// comparedUnit returns the unit of a comparison.
func (w row) comparedUnit() unit {
	if w.compare == ratio {
		return times
	}
	return w.unit
}

func (w row) judge(value float64, quick bool) verdict {
	within := func(bound float64) bool {
		if w.atLeast {
			return value >= bound
		}
		return value <= bound
	}
	slack := 1 + tolerance
	if w.atLeast {
		slack = 1 - tolerance
	}
	switch {
	case w.must == 0:
		return shown
	case within(w.aim):
		return reached
	case within(w.must):
		return held
	case quick && within(w.must*slack):
		return nearly
	}
	return missed
}

// bound formats a bound, such as "≤ 60 µs more".
func (w row) bound(value float64) string {
	if w.must == 0 {
		return "–"
	}
	sign := "≤ "
	if w.atLeast {
		sign = "≥ "
	}
	u := w.comparedUnit()
	text := sign + u.write(value/u.scale)
	if w.compare == added {
		text += " more"
	}
	return text
}

// write formats a value in its unit.
func (u unit) write(value float64) string {
	return strconv.FormatFloat(value, 'f', u.digits, 64) + " " + u.name
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// met reports whether all bounds are met.
func (r *report) met() bool {
	return !slices.ContainsFunc(r.Rows, func(row result) bool { return row.Verdict == missed })
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// noisy is the number of cores that other processes may use before the figures
// are unreliable.
const noisy = 0.1

func (r *report) writeTable(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, "| Measure | Must | Aim | Beside | Gateway | Measured (range of pairs) | Verdict |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|")
	for _, row := range r.Rows {
		u := row.row.comparedUnit()
		lowest := strconv.FormatFloat(slices.Min(row.Pairs), 'f', u.digits, 64)
		highest := strconv.FormatFloat(slices.Max(row.Pairs), 'f', u.digits, 64)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | **%s** (%s to %s) | %s |\n", row.Label, row.Must, row.Aim,
			row.row.unit.write(row.Beside), row.row.unit.write(row.Gateway), u.write(row.Measured), lowest, highest, row.Verdict)
	}
	fmt.Fprintf(&b, "\n%s; %s;\nload average before %s; other processes used %.2f cores during the run.\n",
		r.Machine, r.Date.Format(time.DateOnly), r.Load, r.Foreign)
	if r.Quick {
		fmt.Fprintln(&b, "A quick run: short samples, figures are rough.")
	}
	if r.Foreign > noisy {
		fmt.Fprintln(&b, "Other processes used the machine: these figures may be wrong by some per cent.")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// The table in a file is between these lines.
const (
	tableBegins = "<!-- measured: begin -->\n"
	tableEnds   = "<!-- measured: end -->\n"
)

// writeInto replaces the table in a file.
func (r *report) writeInto(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !found || !ends {
		return errors.New(file + " has no place for the table")
	}
	var b bytes.Buffer
	b.WriteString(before + tableBegins + "\n")
	if err := r.writeTable(&b); err != nil {
		return err
	}
	b.WriteString("\n" + tableEnds + after)
	return os.WriteFile(file, b.Bytes(), 0o644) //nolint:gosec // documentation
}
