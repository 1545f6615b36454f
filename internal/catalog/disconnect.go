package catalog

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// OnDisconnect says what happens to a call whose client disconnects before the end of the
// answer. The call to the backend is cancelled, or finishes without the caller. Its text is
// `cancel`, or `finish` and the maximum time for which the call may continue, such as `finish
// 5m`. The zero value of a price selects the global option. The zero value of the global
// option selects the defaults of [Price.FinishFor].
type OnDisconnect struct {
	set    bool
	finish time.Duration // zero: cancel
}

// defaultFinish is how long a call may continue without its caller, if neither its price nor the global
// option has on_disconnect.
const defaultFinish = 5 * time.Minute

// maxFinish is the maximum time for which a call may continue without its caller.
const maxFinish = 24 * time.Hour

// ParseOnDisconnect parses the arguments of the option on_disconnect.
func ParseOnDisconnect(words ...string) (OnDisconnect, error) {
	switch {
	case len(words) == 1 && words[0] == "cancel":
		return OnDisconnect{set: true}, nil
	case len(words) == 2 && words[0] == "finish":
		finish, err := time.ParseDuration(words[1])
		if err != nil || finish < time.Millisecond || finish > maxFinish {
			return OnDisconnect{}, fmt.Errorf("on_disconnect finish %q: a duration from 1ms to 24h is allowed, such as 5m", words[1])
		}
		return OnDisconnect{true, finish}, nil
	}
	return OnDisconnect{}, fmt.Errorf("on_disconnect %q: \"cancel\" or \"finish <duration>\" is allowed", strings.Join(words, " "))
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *OnDisconnect) UnmarshalText(text []byte) (err error) {
	*d, err = ParseOnDisconnect(strings.Fields(string(text))...)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (d OnDisconnect) MarshalText() ([]byte, error) {
	if d.finish == 0 {
		return []byte("cancel"), nil
	}
	return []byte("finish " + d.finish.String()), nil
}

// FinishFor returns how long a call at price p may continue after its caller has disconnected; zero
// means that it is cancelled. The price's own setting takes precedence over the global one. Without
// either, a call continues if it is not a stream or its stream has shown no content.
//
// A stream with content is cancelled, unless a part of its cost is unknown until the final usage
// report. This is so if p has a price of reasoning, or if the delivered text does not show the whole
// cost; see [CallSpec.CostsUnseen].
func (p *Price) FinishFor(global OnDisconnect, stream, shown, unseen bool) time.Duration {
	switch {
	case p.OnDisconnect.set:
		return p.OnDisconnect.finish
	case global.set:
		return global.finish
	case !stream || !shown || unseen || p.pricesReasoning():
		return defaultFinish
	}
	return 0
}

// pricesReasoning reports whether p has a price of reasoning for some prompt or tier.
func (p *Price) pricesReasoning() bool {
	above := func(a Above) bool { return a.Reasoning != nil }
	return p.Reasoning != nil || slices.ContainsFunc(p.Above, above) || slices.ContainsFunc(p.Tier, func(t Tier) bool {
		return t.Reasoning != nil || slices.ContainsFunc(t.Above, above)
	})
}
