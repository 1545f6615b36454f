// Package pricelist converts public lists of model prices into prices of this gateway. [Read] finds
// the format of a list by its shape; the formats are in modelsdev.go and litellm.go. [List.Caddyfile]
// writes the prices as blocks of a Caddyfile, and [List.KeepChanges] compares them with those of a
// configuration. A list is untrusted input: Caddyfile writes a name only if [entry.finish] allows all
// of its characters. The package imports the catalog of prices, and reads and writes no files.
package pricelist

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/money"
)

// Options select what to import.
type Options struct {
	From     string       // the name of a format; empty: any
	Provider string       // empty: all
	Models   []string     // patterns of [path.Match], in which * also stands for /; empty: all
	Factor   money.Amount // multiplies all amounts
	Date     string       // of the import, such as 2026-11-24; models that are deprecated by then are skipped
}

// List has the prices that [Read] took from a list, and what it left out.
type List struct {
	Source  string          `json:"source"`
	Licence string          `json:"licence"`
	SHA256  string          `json:"sha256"`
	Date    string          `json:"date"`
	Factor  money.Amount    `json:"factor"`
	Prices  []catalog.Price `json:"prices"`
	Skipped []Skipped       `json:"skipped"`
	Ignored []string        `json:"ignored"` // members of the list for which a price has no word

	comments map[catalog.Pattern]string // of changed prices
}

// Skipped is a model without an imported price. Its text may contain any characters of the list.
type Skipped struct {
	Model  string `json:"model"` // its key in the list
	Reason string `json:"reason"`
}

// format describes one format of lists: how to recognize it, and how to read it.
type format struct {
	name, source, licence string

	matches func(top map[string]any) bool
	read    func(r *reader, top map[string]any)
}

var formats = []format{modelsDev, liteLLM}

// reader is one run of [Read].
type reader struct {
	Options
	list    *List
	ignored map[string]bool
	found   map[string][]*entry // by model
}

// Read returns the prices of a list. It returns an error if the format is not known or not the one that
// the options name.
func Read(file []byte, o Options) (*List, error) {
	var top map[string]any
	decoder := json.NewDecoder(bytes.NewReader(file))
	decoder.UseNumber() // amounts are decimal text
	if !json.Valid(file) || decoder.Decode(&top) != nil {
		return nil, errors.New("the file is not a JSON object")
	}
	i := slices.IndexFunc(formats, func(f format) bool { return len(top) > 0 && f.matches(top) })
	switch {
	case i < 0:
		return nil, errors.New("the format of the list is not known; allowed: models.dev, litellm")
	case o.From != "" && o.From != formats[i].name:
		return nil, fmt.Errorf("the list has the format of %s, not of %s", formats[i].name, o.From)
	}
	list := &List{
		Source: formats[i].source, Licence: formats[i].licence, SHA256: fmt.Sprintf("%x", sha256.Sum256(file)),
		Date: o.Date, Factor: o.Factor, Prices: []catalog.Price{}, Skipped: []Skipped{},
	}
	r := &reader{o, list, make(map[string]bool), make(map[string][]*entry)}
	formats[i].read(r, top)
	for _, model := range slices.Sorted(maps.Keys(r.found)) {
		r.choose(model, r.found[model])
	}
	list.Ignored = append([]string{}, slices.Sorted(maps.Keys(r.ignored))...)
	slices.SortFunc(list.Skipped, func(a, b Skipped) int { return cmp.Compare(a.Model, b.Model) })
	return list, nil
}

// choose takes the price of a model. If the list has different prices of the model, it takes none,
// because only the operator knows which provider serves it.
func (r *reader) choose(model string, all []*entry) {
	for i := range all {
		if Block(&all[i].price) != Block(&all[0].price) {
			reason := fmt.Sprintf("%q and %q have different prices; choose one by its provider or its key", all[0].key, all[i].key)
			r.list.Skipped = append(r.list.Skipped, Skipped{model, reason})
			return
		}
	}
	r.list.Prices = append(r.list.Prices, all[0].price)
}

// selects reports whether the options select a model that the list has under key.
func (r *reader) selects(key, model string) bool {
	flat := strings.NewReplacer("/", "\x00") // * of a pattern does not match a slash
	return len(r.Models) == 0 || slices.ContainsFunc(r.Models, func(glob string) bool {
		byKey, _ := path.Match(flat.Replace(glob), flat.Replace(key))
		byName, _ := path.Match(flat.Replace(glob), flat.Replace(model))
		return byKey || byName
	})
}
