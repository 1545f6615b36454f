package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// Prices is an immutable set of prices. They are looked up by model. A call may keep the price with
// which it began.
type Prices struct {
	exact    map[string]*Price
	prefixes []prefix // sorted
	names    []string // exact names, in the order of the configuration
}

// prefix is a pattern without its "*".
type prefix struct {
	text   string
	price  *Price
	parent int // the longest other prefix that text begins with; -1: none
}

// NewPrices returns a set of prices. It returns an error if a row is invalid or two rows have the same
// pattern.
func NewPrices(rows []Price) (*Prices, error) {
	ps := &Prices{exact: make(map[string]*Price)}
	seen := make(map[Pattern]bool, len(rows))
	for _, row := range rows {
		if err := row.Validate(); err != nil {
			return nil, err
		}
		if seen[row.Model] {
			return nil, fmt.Errorf("price %s is given twice", row.Model)
		}
		seen[row.Model] = true
		if text, ok := strings.CutSuffix(string(row.Model), "*"); ok {
			ps.prefixes = append(ps.prefixes, prefix{text, &row, -1})
		} else {
			ps.exact[text] = &row
			ps.names = append(ps.names, text)
		}
	}
	slices.SortFunc(ps.prefixes, func(a, b prefix) int { return strings.Compare(a.text, b.text) })
	for i := range ps.prefixes {
		// All prefixes of a text are sorted before it, so they are in the chain of the
		// previous prefix.
		ps.prefixes[i].parent = ps.chain(i-1, ps.prefixes[i].text)
	}
	return ps, nil
}

// Find returns the price of a model: the price of its exact name, or else of the longest matching
// prefix. A model that this prefix bars has no price.
func (ps *Prices) Find(model string) (*Price, bool) {
	if p, ok := ps.exact[model]; ok {
		return p, true
	}
	i := ps.longest(model)
	if i < 0 || isAmbiguous(ps.prefixes[i].text, model) {
		return nil, false
	}
	return ps.prefixes[i].price, true
}

// Bars reports whether model has no price because a prefix bars it; see [Pattern.Bars]. Such a model
// is refused, even if models without a price are free.
func (ps *Prices) Bars(model string) bool {
	if _, ok := ps.exact[model]; ok {
		return false
	}
	i := ps.longest(model)
	return i >= 0 && isAmbiguous(ps.prefixes[i].text, model)
}

// longest returns the index of the longest prefix of model, or -1. If it bars the model, all shorter
// prefixes bar it, too.
func (ps *Prices) longest(model string) int {
	i, found := slices.BinarySearchFunc(ps.prefixes, model, func(p prefix, model string) int {
		return strings.Compare(p.text, model)
	})
	if !found {
		i--
	}
	return ps.chain(i, model)
}

// chain returns the first of prefix i, its parent, and so on, that is a prefix of text, or -1. If i
// is the last prefix that is not sorted after text, the result is the longest prefix of text. The
// reason is that all texts that are sorted between a prefix and its extension begin with the
// prefix.
func (ps *Prices) chain(i int, text string) int {
	for i >= 0 && !strings.HasPrefix(text, ps.prefixes[i].text) {
		i = ps.prefixes[i].parent
	}
	return i
}

// Names returns the exact names among the patterns, in the order of the
// configuration.
func (ps *Prices) Names() []string { return slices.Clone(ps.names) }

// Len returns the number of prices.
func (ps *Prices) Len() int { return len(ps.exact) + len(ps.prefixes) }
