package catalog

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
)

func TestParseOnDisconnect(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"cancel": "cancel", "finish 5m": "finish 5m0s", "finish 1ms": "finish 1ms", "finish 24h": "finish 24h0m0s"} {
		var d OnDisconnect
		if err := json.Unmarshal([]byte(`"`+text+`"`), &d); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got, err := d.MarshalText(); err != nil || string(got) != want {
			t.Errorf("%q is encoded as %q (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "finish", "cancel 5m", "finish 0", "finish -1s", "finish 25h", "finish 5", "finish 5m now", "Cancel", "stay 5m"} {
		var d OnDisconnect
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted as %+v", text, d)
		}
	}
}

func TestFinishFor(t *testing.T) {
	t.Parallel()
	parse := func(words ...string) OnDisconnect {
		d, err := ParseOnDisconnect(words...)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	cancel, minute, hour := parse("cancel"), parse("finish", "1m"), parse("finish", "1h")
	for name, c := range map[string]struct {
		own, global           OnDisconnect
		reasoning             bool
		stream, shown, unseen bool
		want                  time.Duration
	}{
		"no stream":                                 {stream: false, want: 5 * time.Minute},
		"no stream, with content":                   {shown: true, want: 5 * time.Minute},
		"a stream without content":                  {stream: true, want: 5 * time.Minute},
		"a stream with content":                     {stream: true, shown: true, want: 0},
		"with content and a price of reasoning":     {stream: true, shown: true, reasoning: true, want: 5 * time.Minute},
		"with content and unseen costs":             {stream: true, shown: true, unseen: true, want: 5 * time.Minute},
		"without content, unseen costs":             {stream: true, unseen: true, want: 5 * time.Minute},
		"unseen costs, cancelled globally":          {global: cancel, stream: true, shown: true, unseen: true, want: 0},
		"unseen costs, cancelled by the price":      {own: cancel, global: hour, stream: true, shown: true, unseen: true, want: 0},
		"cancelled globally":                        {global: cancel, want: 0},
		"finished globally":                         {global: minute, stream: true, shown: true, want: time.Minute},
		"finished by the price, cancelled globally": {own: hour, global: cancel, stream: true, shown: true, want: time.Hour},
		"cancelled by the price, finished globally": {own: cancel, global: hour, reasoning: true, want: 0},
	} {
		p := Price{OnDisconnect: c.own}
		if c.reasoning {
			p.Tier = []Tier{{Above: []Above{{TokenPrices: TokenPrices{Reasoning: new(money.Amount)}}}}}
		}
		if got := p.FinishFor(c.global, c.stream, c.shown, c.unseen); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
