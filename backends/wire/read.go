package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
)

// maxLink is the maximum length of a result's URL in bytes. Signed URLs may have
// a few KiB.
const maxLink = 8192

// Decode decodes the JSON object of a 2xx answer. It ignores unknown members,
// because services add some at any time.
func (c *Client) Decode(op Operation, answer Response, into any) error {
	body := bytes.TrimSpace(answer.Body)
	if len(body) == 0 || body[0] != '{' {
		return c.Unreadable(op, "it is not a JSON object")
	}
	if err := json.Unmarshal(body, into); err != nil {
		return c.Unreadable(op, "it does not have the form of this service")
	}
	return nil
}

// Encode returns the body of a request. It does not escape HTML characters.
func Encode(body any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(body)
	return bytes.TrimRight(text.Bytes(), "\n"), err
}

// Text is a string in an answer. A value of another type is decoded as "", so
// that it does not make the rest unreadable.
type Text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(raw []byte) error {
	var text string
	*t = ""
	if json.Unmarshal(raw, &text) == nil {
		*t = Text(text)
	}
	return nil
}

// Number is a number in an answer. It may be a string, also with a percent sign
// such as "50%". Any other value is decoded as 0, so that it does not make the
// rest unreadable.
type Number float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *Number) UnmarshalJSON(raw []byte) error {
	*n = 0
	text := strings.TrimSuffix(strings.Trim(string(raw), `"`), "%")
	if value, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(value, 0) && !math.IsNaN(value) {
		*n = Number(value)
	}
	return nil
}

// Percent returns the number as a percentage, 0 to 100.
func (n Number) Percent() int { return int(min(max(n, 0), 100)) }

// maxPixels is the maximum width and height of a result.
const maxPixels = 1 << 16

// Pixels returns the number as a width or height, or 0 if it is out of range.
func (n Number) Pixels() int {
	if n < 0 || n > maxPixels {
		return 0
	}
	return int(n)
}

// maxSeconds is the maximum duration of a video: one day.
const maxSeconds = 86400

// Seconds returns the number as a duration in seconds, or 0 if it is out of
// range.
func (n Number) Seconds() float64 {
	if n < 0 || n > maxSeconds {
		return 0
	}
	return float64(n)
}

// Cost returns a number in an answer as a cost in this unit. It returns the zero
// Cost if raw is not a number of at most 32 bytes.
func Cost(raw json.RawMessage, unit string) backends.Cost {
	amount := strings.Trim(string(raw), `"`)
	value, err := strconv.ParseFloat(amount, 64)
	if err != nil || math.IsInf(value, 0) || math.IsNaN(value) || len(amount) > 32 {
		return backends.Cost{}
	}
	return backends.Cost{Amount: amount, Unit: unit}
}

// Link returns the URL of a result, or "" if text is not an absolute http or
// https URL without credentials.
func Link(text string) string {
	if len(text) > maxLink || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return ""
	}
	return text
}

// Within returns address, which a service returned for a job, or "" if its scheme
// or host differs from base. The credential is sent to base only.
func Within(base, address string) string {
	b, err := url.Parse(base)
	if err != nil {
		return ""
	}
	u, err := url.Parse(Link(address))
	if err != nil || u.Scheme != b.Scheme || u.Host != b.Host {
		return ""
	}
	return address
}

// Success returns the status of a job that succeeded with results at these
// URLs. It drops invalid URLs, and all URLs after the first maxLinks. If no URL
// is left, the state is Unknown: the next poll may return one, but a failure
// would be final.
func (c *Client) Success(word string, makes backends.MediaType, links ...string) backends.Status {
	status := backends.Status{State: backends.Succeeded, Word: c.clean(word), Progress: 100}
	for _, link := range links {
		if link = Link(link); link != "" && len(status.Results) < maxLinks {
			status.Results = append(status.Results, backends.Result{URL: link, Type: makes, Format: format(link)})
		}
	}
	if len(status.Results) == 0 {
		return c.Unfinished(backends.Unknown, word+" without a result", 0)
	}
	return status
}

// Failed returns the status of a job that failed.
func (c *Client) Failed(word string, failure *backends.Failure) backends.Status {
	return backends.Status{State: backends.Failed, Word: c.clean(word), Failure: failure}
}

// Unfinished returns the status of a job that is queued, running or in an
// unknown state.
func (c *Client) Unfinished(state backends.State, word string, progress Number) backends.Status {
	return backends.Status{State: state, Word: c.clean(word), Progress: progress.Percent()}
}

// formats maps file extensions to formats.
var formats = map[string]string{
	".mp4": "mp4", ".mov": "mov", ".webm": "webm",
	".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp", ".gif": "gif",
}

// format returns the format of the file extension of a URL, or "".
func format(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return ""
	}
	return formats[strings.ToLower(u.Path[max(0, strings.LastIndexByte(u.Path, '.')):])]
}

// Strings converts texts to strings.
func Strings(texts []Text) []string {
	list := make([]string, len(texts))
	for i, text := range texts {
		list[i] = string(text)
	}
	return list
}

// Object is an object in an answer. A value of another type is decoded as
// empty, so that it does not make the rest unreadable.
type Object map[string]json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(raw []byte) error {
	var members map[string]json.RawMessage
	*o = nil
	if json.Unmarshal(raw, &members) == nil {
		*o = members
	}
	return nil
}

// Text returns a member that is a string, or "".
func (o Object) Text(name string) string {
	var text Text
	_ = json.Unmarshal(o[name], &text)
	return string(text)
}
