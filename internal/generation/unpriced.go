package generation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// priceScan compares all members of a request with its price. It finds members at any depth,
// strings that contain JSON, and commands in texts, such as `--dur 30`. If one sets duration,
// number or quality, it must have the priced value or name a row of the price.
type priceScan struct {
	request Request
	named   func(word string) bool // reports whether the price has a row of this name

	path     []step // of the current value
	unquoted []byte // text of the current string
	word     string // the named row; empty: none
	refused  *fault.Fault
}

// step is one part of a path: a member, or an array element if it has no name.
type step struct {
	name  string
	index int
}

// qualities are members, as returned by [normalize], with which services are known
// to select a quality that costs more.
var qualities = []string{
	"mode", "quality", "qualitymode", "qualitytier", "videomode", "videoquality", "outputquality", "renderquality",
	"motionmode", "speedmode", "tier", "servicetier", "performance",
}

// standardQualities are the quality names that need no row in the price.
var standardQualities = []string{"", "default", "normal", "standard", "std"}

// endFields are members that set the second at which a video ends.
var endFields = []string{"endtime", "endat", "endsec", "endsecond", "endseconds", "videoendtime"}

// textFields are members whose text is not parsed as JSON.
var textFields = []string{"prompt", "negativeprompt", "text"}

// maxPath is the maximum length of a path in an error, in bytes.
const maxPath = 256

// unpriced returns an error if a member affects the price of c and is not counted by
// price, which has rows. Otherwise it returns the name of the row that c selects by
// a quality, or "".
func (c *Checked) unpriced(price *catalog.Price) (row string, refused *fault.Fault) {
	a := &priceScan{request: c.Request, named: func(word string) bool { return price.Names(c.Kind, word) }}
	a.request.Output.Count = cmp.Or(a.request.Output.Count, new(1))
	a.enter("prompt", 0)
	a.commands(c.Prompt)
	a.leave()
	for _, name := range slices.Sorted(maps.Keys(c.Fields)) {
		if raw := c.Fields[name]; name != "prompt" && !bodyFields[name] && string(raw) != "null" && a.refused == nil {
			a.enter(name, 0)
			a.read(name, raw)
			a.leave()
		}
	}
	if len(c.ExtInfo) > 0 && a.refused == nil {
		a.enter("ext_info", 0)
		a.read("", c.ExtInfo)
	}
	return a.word, a.refused
}

func (a *priceScan) enter(name string, index int) { a.path = append(a.path, step{name, index}) }
func (a *priceScan) leave()                       { a.path = a.path[:len(a.path)-1] }

// refuse returns an error for the current value.
func (a *priceScan) refuse(format string, args ...any) {
	if a.refused == nil {
		a.refused = invalid(a.at(), format, args...)
	}
}

// at returns the path of the current value: metadata.shots[0].duration.
func (a *priceScan) at() string {
	var path strings.Builder
	for i, s := range a.path {
		switch {
		case s.name == "":
			path.WriteString("[" + strconv.Itoa(s.index) + "]")
		case i == 0:
			path.WriteString(s.name)
		default:
			path.WriteString("." + s.name)
		}
	}
	return path.String()[:min(path.Len(), maxPath)]
}

// read checks the value of a member with this name. It reports whether raw is
// complete JSON.
func (a *priceScan) read(name string, raw []byte) bool {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	a.value(dec, name, nil)
	return a.refused != nil || dec.PeekKind() == 0 && int(dec.InputOffset()) == len(bytes.TrimRight(raw, " \t\r\n"))
}

// length is a member of an array element that sets a duration.
type length struct {
	at string
	n  catalog.Seconds
}

// value checks the next value. lengths collects the durations of array elements
// if the value is a member of one; otherwise it is nil.
func (a *priceScan) value(dec *jsontext.Decoder, name string, lengths *[]length) {
	switch kind := dec.PeekKind(); kind {
	case '{', '[':
		a.member(name, json.RawMessage{byte(kind)}, nil)
		if kind == '{' {
			a.object(dec, nil)
		} else {
			a.array(dec)
		}
	default:
		raw, err := dec.ReadValue()
		if err != nil {
			return
		}
		a.member(name, json.RawMessage(raw), lengths)
		if kind == '"' {
			a.text(name, raw)
		}
	}
}

func (a *priceScan) object(dec *jsontext.Decoder, lengths *[]length) {
	_, _ = dec.ReadToken()
	for a.refused == nil && dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			return
		}
		name := token.String()
		a.enter(name, 0)
		a.value(dec, name, lengths)
		a.leave()
	}
	_, _ = dec.ReadToken()
}

// array checks the next array. The durations of its elements must add up to the
// duration of the whole.
func (a *priceScan) array(dec *jsontext.Decoder) {
	var lengths []length
	_, _ = dec.ReadToken()
	for i := 0; a.refused == nil && dec.PeekKind() != ']' && dec.PeekKind() != 0; i++ {
		a.enter("", i)
		if dec.PeekKind() == '{' {
			a.object(dec, &lengths)
		} else {
			a.value(dec, "", nil)
		}
		a.leave()
	}
	_, _ = dec.ReadToken()
	var sum catalog.Seconds
	for _, l := range lengths {
		sum += l.n
	}
	if whole := a.request.Output.Duration; len(lengths) > 0 && a.refused == nil && whole != nil && sum != *whole {
		a.refused = invalid(lengths[0].at, "and the durations of the other elements must add up to `duration`, which determines the price")
	}
}

// member compares a member with the price, if it affects the price.
func (a *priceScan) member(name string, raw json.RawMessage, lengths *[]length) {
	if len(name) > longestName {
		return
	}
	switch name := normalize(name); {
	case slices.Contains(qualities, name):
		a.quality(raw)
	case slices.Contains(endFields, name):
		end, refused := catalog.ParseSeconds(newAlias(0, "", raw).text)
		if whole := a.request.Output.Duration; string(raw) != "null" && whole != nil && (refused != nil || end > *whole) {
			a.refuse("must not be later than `duration`, which determines the price")
		}
	default:
		rank, found := ranks[name]
		if !found || !quantities[rank].deep {
			return
		}
		given := newAlias(rank, "", raw)
		if !given.counts() {
			return
		}
		if one := (&Request{}); lengths != nil && given.quantity().adopt(one, &given) && one.Output.Duration != nil && len(*lengths) < maxVideos {
			*lengths = append(*lengths, length{a.at(), *one.Output.Duration})
			return
		}
		a.same(&given)
	}
}

// same returns an error for an alias that does not have the priced value.
func (a *priceScan) same(given *alias) {
	if q := given.quantity(); !q.adopt(&a.request, given) {
		a.refuse("must have the same value as %s, which determines the price", q.means)
	}
}

// quality selects the price row of a quality name. A standard name needs no row,
// and a resolution must be the priced one.
func (a *priceScan) quality(raw json.RawMessage) {
	given := newAlias(ranks["resolution"], "", raw)
	isText := raw[0] == '"'
	switch word := strings.ToLower(given.text); {
	case string(raw) == "null" || string(raw) == "false":
	case isText && word != "" && a.named(word):
		if a.word != "" && a.word != word {
			a.refuse("must have the same value as the member that requests %s", quote(a.word))
		}
		a.word = word
	case isText && slices.Contains(standardQualities, word):
	case isText && given.readable() && strings.Trim(word, "0123456789") != "":
		a.same(&given)
	case a.refused == nil:
		a.refused = fault.At(fault.UnpricedOption, a.at(), "`%s` requests a quality without a price for this model; omit it, or use %s",
			a.at(), catalog.Either(standardQualities[1:]))
	}
}

// text checks the text of a string: its commands, and the object that it may
// contain.
func (a *priceScan) text(name string, raw []byte) {
	if !bytes.ContainsAny(raw, `{\`) && !bytes.Contains(raw, []byte("--")) {
		return
	}
	a.unquoted, _ = jsontext.AppendUnquote(a.unquoted[:0], raw) // invalid surrogates are replaced
	text := a.unquoted
	if bytes.Contains(text, []byte("--")) {
		a.commands(string(text))
	}
	switch {
	case a.refused != nil || !isObject(text) || slices.Contains(textFields, normalize(name[:min(len(name), longestName)])):
	case len(text) > MaxExtended:
		a.refuse("contains JSON of more than %d bytes", MaxExtended)
	case !a.read("", bytes.Clone(text)):
		a.refuse("begins like JSON, but is not valid JSON")
	}
}

// isObject reports whether a text begins like an object with members, or like a
// list of such objects.
func isObject(text []byte) bool {
	inner, begins := bytes.CutPrefix(bytes.TrimLeft(text, " \t\r\n["), []byte("{"))
	return begins && bytes.HasPrefix(bytes.TrimLeft(inner, " \t\r\n"), []byte(`"`))
}

// commands compares the commands of a text with the price. A command is `--`, a
// name, and a value. White space, a colon or an equals sign may precede the value.
// A URL contains no commands.
func (a *priceScan) commands(text string) {
	for from := 0; a.refused == nil; {
		at := strings.Index(text[from:], "--")
		if at < 0 {
			return
		}
		at += from
		from = at + len("--")
		rest := text[from:]
		name := rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-"))]
		if name == "" || len(name) > longestName || strings.Contains(text[strings.LastIndexAny(text[:at], " \t\r\n")+1:at], "://") {
			continue
		}
		value := strings.TrimLeft(rest[len(name):], " \t\r\n:=")
		if end := strings.IndexAny(value, " \t\r\n"); end >= 0 {
			value = value[:end]
		}
		a.command(name, strings.Trim(value, `.,;:!?"'()[]{}`))
	}
}

// command compares one command with the price.
func (a *priceScan) command(name, value string) {
	name = normalize(name)
	if name == "rs" {
		name = "resolution"
	}
	raw, _ := json.Marshal(value[:min(len(value), maxPath)])
	rank, found := ranks[name]
	switch {
	case found && quantities[rank].opaque:
		if given := newAlias(rank, "", raw); !given.readable() || !adoptSize(&a.request, &given) {
			a.refuse("contains the command --%s, which must have the same value as %s", name, quantities[rank].means)
		}
	case found && quantities[rank].deep || slices.Contains(endFields, name) || slices.Contains(qualities, name):
		if a.member(name, raw, nil); a.refused != nil {
			a.refused = fault.At(a.refused.Code, a.at(), "the command --%s of %s", name, a.refused.Message)
		}
	}
}
