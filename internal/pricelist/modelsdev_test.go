package pricelist_test

import (
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/pricelist"
)

func TestModelsDev(t *testing.T) {
	t.Parallel()
	list := readFile(t, "modelsdev.json", options("acme"))
	want := `price acme-large {
	input 1.25
	output 10.00
	cache_read 0.125
	reasoning 12.00
	audio_input 32.00
	audio_output 64.00
	context 400000
	max_output 128000
	above 272000 {
		input 2.50
		output 15.00
		cache_read 0.25
		reasoning 15.00
	}
	tier fast priority {
		input 2.50
		output 20.00
		reasoning 20.00
		above 272000 {
			input 5.00
			output 30.00
			reasoning 30.00
		}
	}
}
price acme-small {
	input 0.15
	output 0.60
	context 1000000
	max_output 8192
	above 200000 {
		input 0.30
		output 0.90
	}
}
`
	if got := blocks(list); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	same(t, "skipped", reasons(list), []string{
		`"acme/acme-*": its name cannot be written in a Caddyfile`,
		`"acme/acme-free": it has no price above 0 for input or for output`,
		`"acme/acme-negative": cost.output is negative`,
		`"acme/acme-old": it is deprecated`,
		`"acme/acme-text": cost.input is not a number`,
		`"acme/acme-unbounded": it has no limit.context from 1 to 1000000000`,
		`"acme/acme-unpriced": it has no price above 0 for input or for output`,
		`"acme/acme-x {\n}\n}\nimport /etc/passwd\n": its name cannot be written in a Caddyfile`,
		`"acme/{$HOME}": its name cannot be written in a Caddyfile`,
	})
	same(t, "ignored", list.Ignored, []string{
		"cost.cache_write where it is 0", "cost.input where it is 0", "cost.output where it is 0", "cost.per_minute",
		"cost.tiers of another type than context", "experimental.modes.odd", "limit.context where it is 0",
	})
	if got := blocks(&pricelist.List{Prices: adapted(t, list.Caddyfile())}); got != want {
		t.Errorf("the adapter reads\n%s", got)
	}
}
