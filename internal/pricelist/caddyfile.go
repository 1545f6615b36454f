package pricelist

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/money"
)

// Caddyfile returns the text of a file to import into the option modelgate. After [List.KeepChanges]
// it has comments with the present prices.
func (l *List) Caddyfile() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Prices of models in USD, times %v. Compare them with what you pay.\n", l.Factor)
	fmt.Fprintf(&b, "# Source: %s\n# Licence: %s\n# SHA-256: %s\n# Imported: %s\n", l.Source, l.Licence, l.SHA256, l.Date)
	for i := range l.Prices {
		p := &l.Prices[i]
		fmt.Fprintf(&b, "\n%s%s\n", l.comments[p.Model], Block(p))
	}
	return b.String()
}

// KeepChanges keeps only the prices that differ from the current prices of their models. It compares only
// what a list can contain. So it ignores on_disconnect, prices of videos, and the max of tools and recordings.
func (l *List) KeepChanges(current *catalog.Prices) {
	l.comments = make(map[catalog.Pattern]string)
	l.Prices = slices.DeleteFunc(l.Prices, func(p catalog.Price) bool {
		old, ok := current.Find(string(p.Model))
		if !ok {
			l.comments[p.Model] = fmt.Sprintf("# %s: new\n", p.Model)
			return false
		}
		same := *old
		same.Model = p.Model
		l.comments[p.Model] = fmt.Sprintf("# %s: changed; now it costs\n# %s\n", p.Model, strings.ReplaceAll(Block(old), "\n", "\n# "))
		return Block(&same) == Block(&p)
	})
}

// Block returns the block of a price in a Caddyfile, with only what a list can contain. The order of its
// lines does not depend on the order in the price.
func Block(p *catalog.Price) string {
	body := tokenLines(&p.TokenPrices)
	if p.Request > 0 {
		body = append(body, fmt.Sprintf("request %v", p.Request))
	}
	for _, v := range p.Image {
		body = append(body, "image "+v.String())
	}
	for _, u := range p.Per {
		body = append(body, fmt.Sprintf("per %s %v", u.Unit, u.Price))
	}
	if p.Context > 0 {
		body = append(body, fmt.Sprintf("context %d", p.Context))
	}
	if p.MaxOutput > 0 {
		body = append(body, fmt.Sprintf("max_output %d", p.MaxOutput))
	}
	rules := aboveBlocks(p.Above)
	for i := range p.Tier {
		t := &p.Tier[i]
		head := "tier " + strings.Join(slices.Sorted(slices.Values(t.Names)), " ")
		if t.Factor > 0 {
			rules = append(rules, head+factor(t.Factor))
		} else {
			rules = append(rules, block(head, append(tokenLines(&t.TokenPrices), aboveBlocks(t.Above)...)))
		}
	}
	for _, g := range p.Geo {
		rules = append(rules, "geo "+g.Name+factor(g.Factor))
	}
	for _, c := range p.Call {
		rules = append(rules, fmt.Sprintf("call %s %v", c.Tool, c.Price))
	}
	slices.Sort(rules)
	return block("price "+string(p.Model), append(body, rules...))
}

func block(head string, body []string) string {
	return head + " {\n\t" + strings.ReplaceAll(strings.Join(body, "\n"), "\n", "\n\t") + "\n}"
}

func tokenLines(t *catalog.TokenPrices) (lines []string) {
	for _, w := range t.Words() {
		if *w.Amount != nil {
			lines = append(lines, fmt.Sprintf("%s %v", w.Word, **w.Amount))
		}
	}
	return lines
}

func aboveBlocks(above []catalog.Above) (blocks []string) {
	for i := range above {
		blocks = append(blocks, block(fmt.Sprintf("above %d", above[i].Tokens), tokenLines(&above[i].TokenPrices)))
	}
	slices.Sort(blocks)
	return blocks
}

// factor returns a factor such as " x1.1".
func factor(f money.Amount) string {
	return " x" + strings.TrimSuffix(strings.TrimRight(f.String(), "0"), ".")
}
