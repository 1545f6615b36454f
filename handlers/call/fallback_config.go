package call

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

// Fallback is the models that are called instead of another one if its call fails in a named way
// before the caller has received anything.
type Fallback struct {
	// The model that has the fallbacks: an exact name, or a prefix and `*`.
	Model string `json:"model"`

	// The models to call instead, in this order. The call is charged by the one that
	// answers.
	To []string `json:"to"`

	// The failures after which the next model is called: `dial` if no backend could be
	// reached; a status of the backend from 400 to 599, such as `429`, or `4xx`, `5xx`;
	// `timeout` if no head of an answer came in time; `broken` if the backend broke the
	// connection before the head of its answer. After the last two, the backend may
	// have run the call.
	On []string `json:"on"`

	pattern catalog.Pattern
	named   [maxFailure]bool
}

// failure is how an attempt failed before its answer: a status of the backend, or one of the
// following.
type failure int

const (
	noFailure failure = iota
	failedDial
	failedTimeout
	failedBroken

	maxFailure failure = 600
)

// failureWords are the words for failures that are no statuses.
var failureWords = map[string]failure{"dial": failedDial, "timeout": failedTimeout, "broken": failedBroken}

// String returns the word of the configuration.
func (f failure) String() string {
	for word, other := range failureWords {
		if f == other {
			return word
		}
	}
	return strconv.Itoa(int(f))
}

// mayHaveRun reports whether the backend may have run the call if it has received the body.
func (f failure) mayHaveRun() bool { return f == failedTimeout || f == failedBroken }

// unmarshalFallback reads
//
//	fallback <pattern> <model>... on <failure>...
func (b *block) unmarshalFallback(h httpcaddyfile.Helper) error {
	words := h.RemainingArgs()
	on := slices.Index(words, "on")
	if on < 2 || on == len(words)-1 {
		return h.Err("fallback: the form is: fallback <model> <other model>… on <failure>…")
	}
	f := Fallback{Model: words[0], To: words[1:on], On: words[on+1:]}
	if err := f.compile(); err != nil {
		return h.WrapErr(err)
	}
	if slices.ContainsFunc(b.Fallbacks, func(other Fallback) bool { return other.Model == f.Model }) {
		return h.Errf("fallback %s is given twice", f.Model)
	}
	b.Fallbacks = append(b.Fallbacks, f)
	return nil
}

// compile checks the words of f.
func (f *Fallback) compile() (err error) {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("fallback %s: %s", f.Model, fmt.Sprintf(format, args...))
	}
	if f.pattern, err = catalog.ParsePattern(f.Model); err != nil {
		return fmt.Errorf("fallback: %w", err)
	}
	if len(f.To) == 0 || len(f.On) == 0 {
		return wrong("it needs other models and failures")
	}
	for i, model := range f.To {
		p, err := catalog.ParsePattern(model)
		switch {
		case err != nil:
			return wrong("%v", err)
		case !p.Exact():
			return wrong("%q is a pattern: only exact names can be called instead", model)
		case model == f.Model || slices.Contains(f.To[:i], model):
			return wrong("%s is given twice", model)
		}
	}
	for _, word := range f.On {
		if named, ok := failureWords[word]; ok {
			f.named[named] = true
			continue
		}
		if class, ok := strings.CutSuffix(word, "xx"); ok && (class == "4" || class == "5") {
			first := int(class[0]-'0') * 100
			for status := first; status < first+100; status++ {
				f.named[status] = true
			}
			continue
		}
		status, err := strconv.Atoi(word)
		if err != nil || status < 400 || status >= int(maxFailure) {
			return wrong("%q is no failure; allowed: dial, timeout, broken, 4xx, 5xx, a status from 400 to 599", word)
		}
		f.named[status] = true
	}
	return nil
}

// provisionFallbacks compiles the fallbacks of the block. Aliases in them stand for their models.
func (b *block) provisionFallbacks(app *caddymodule.App) error {
	for i := range b.Fallbacks {
		f := &b.Fallbacks[i]
		if err := f.compile(); err != nil {
			return err
		}
		f.pattern = catalog.Pattern(app.Resolve(f.Model))
		if slices.ContainsFunc(b.Fallbacks[:i], func(other Fallback) bool { return other.pattern == f.pattern }) {
			return fmt.Errorf("fallback %s is given twice", f.pattern)
		}
		for j, model := range f.To {
			f.To[j] = app.Resolve(model)
			if _, ok := app.PriceOf(model, catalog.AnyUnit); !ok {
				return fmt.Errorf("fallback %s: %s has no price for calls", f.Model, f.To[j])
			}
		}
	}
	return nil
}

// fallbackOf returns the fallbacks of a model, by the first row that matches, or nil.
func (b *block) fallbackOf(model string) *Fallback {
	for i := range b.Fallbacks {
		if b.Fallbacks[i].pattern.Match(model) {
			return &b.Fallbacks[i]
		}
	}
	return nil
}
